"""Whether the topics of a ZooKeeper cluster have the same ids on all brokers that were scanned, before uploads to remote storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from snaprebuild.cluster.fleet.replicas import Fleet
from snaprebuild.findings import Finding, Severity, first_of, pluralize

__all__ = ["topic_id_findings"]

ORDER = "Raise inter.broker.protocol.version to 2.8 or newer on the controller and all brokers, then switch remote storage on"


def topic_id_findings(fleet: Fleet) -> Iterator[Finding]:
    """A finding for topics that would be uploaded under id zero, and one for those that have an id on some brokers only."""
    if fleet.under_id_zero:
        who = _brokers(fleet.under_id_zero.values())
        message = f"not ready for remote storage: {_topics(fleet.under_id_zero)} would be uploaded under topic id zero. {ORDER}"
        yield Finding("topic-id-zero", Severity.FINDING, who, message)
    differing = {
        topic: nodes
        for topic, nodes in fleet.without_id.items()
        if topic in fleet.with_id and not nodes <= fleet.under_id_zero.get(topic, set())
    }
    if differing:
        who = _brokers(differing.values())
        message = f"not ready for remote storage: {_topics(differing)} without a topic id here, and with one elsewhere. {ORDER}"
        yield Finding("topic-id-not-everywhere", Severity.FINDING, who, message)


def _topics(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return f"{pluralize(len(ordered), 'topic')} ({first_of(ordered)})"


def _brokers(nodes: Iterable[set[int]]) -> str:
    every = sorted(set[int]().union(*nodes))
    return f"{'broker' if len(every) == 1 else 'brokers'} {', '.join(map(str, every))}"
