"""Whether the topics of a ZooKeeper cluster have the same ids on all brokers that were scanned, before uploads to remote storage.

An id in every ``partition.metadata`` is the proof that a cluster is ready. The configuration of one broker shows nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from snaprebuild.cluster.fleet.replicas import ScannedFleet
from snaprebuild.findings import Finding, Severity, choose_form, first_of, pluralize

__all__ = ["topic_id_findings", "topics_without_id"]

ORDER = "Raise inter.broker.protocol.version to 2.8 or newer on the controller and all brokers, then switch remote storage on"


def topic_id_findings(fleet: ScannedFleet) -> Iterator[Finding]:
    """Findings for topics that would be uploaded under id zero, that have an id on some brokers only, and that have several ids.

    Scans that were refused show nothing of the cluster as it is.
    """
    counted = {node for node, broker in fleet.brokers.items() if broker.document not in fleet.refused}
    under_zero = _of(fleet.under_id_zero, counted)
    without = _of(fleet.without_id, counted)
    with_id = {topic: _of(ids, counted) for topic, ids in fleet.with_id.items()}
    with_id = {topic: ids for topic, ids in with_id.items() if ids}
    if under_zero:
        message = f"not ready for remote storage: {_topics(under_zero)} would be uploaded under topic id zero. {ORDER}"
        yield Finding("topic-id-zero", Severity.FINDING, _brokers(under_zero.values()), message)
    # Brokers that would upload a topic under id zero are named already.
    differing = {topic: nodes for topic, nodes in without.items() if topic in with_id and not nodes <= under_zero.get(topic, set())}
    if differing:
        message = f"not ready for remote storage: {_topics(differing)} without a topic id here, and with one elsewhere. {ORDER}"
        yield Finding("topic-id-not-everywhere", Severity.FINDING, _brokers(differing.values()), message)
    yield from _several_ids(fleet, with_id)


def topics_without_id(fleet: ScannedFleet) -> list[str]:
    """The topics that have no id on some broker, or would be uploaded under id zero."""
    counted = {node for node, broker in fleet.brokers.items() if broker.document not in fleet.refused}
    return sorted({*_of(fleet.under_id_zero, counted), *_of(fleet.without_id, counted)})


def _several_ids(fleet: ScannedFleet, with_id: dict[str, dict[str, set[int]]]) -> Iterator[Finding]:
    """Partitions of one topic with different ids. Replicas of one partition with different ids are findings of the partition."""
    ids_of_partitions: dict[tuple[str, int], set[str | None]] = {}
    for topic, number, topic_id in fleet.partitions:
        ids_of_partitions.setdefault((topic, number), set()).add(topic_id)
    reported = {topic for (topic, _), ids in ids_of_partitions.items() if len(ids) > 1}
    for topic, ids in sorted(with_id.items()):
        if len(ids) > 1 and topic not in reported:
            detail = "; ".join(f"{topic_id} on {_brokers([nodes])}" for topic_id, nodes in sorted(ids.items()))
            message = f"has several topic ids ({detail}): some disk is old; `cluster source` shows which"
            yield Finding("several-topic-ids", Severity.FINDING, topic, message)


def _of(brokers: dict[str, set[int]], counted: set[int]) -> dict[str, set[int]]:
    """The brokers that count, by topic or id; none that has none of them."""
    return {key: nodes & counted for key, nodes in brokers.items() if nodes & counted}


def _topics(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return f"{pluralize(len(ordered), 'topic')} ({first_of(ordered)})"


def _brokers(nodes: Iterable[set[int]]) -> str:
    every = sorted(set[int]().union(*nodes))
    return f"{choose_form(len(every), 'broker', 'brokers')} {', '.join(map(str, every))}"
