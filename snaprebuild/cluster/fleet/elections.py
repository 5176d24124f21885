"""Elections as files that Kafka's own tools read: the leaders to elect now and after each restart.

``kafka-leader-election --election-type preferred`` elects the first broker of a partition's replicas, and no other one can be named.
Therefore two files belong together. One is for ``kafka-reassign-partitions``: it has the same replicas in another order and moves no data.
The other is for the election. A third file has the original order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from snaprebuild.cluster.fleet.election_risk import Risk
from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.published import Natural, Part, Positive
from snaprebuild.snapshots.destination.output_directory import check_output
from snaprebuild.storage.local.directories import make_directories
from snaprebuild.storage.local.document_file import write_text_file
from snaprebuild.storage.local.log_dir_guard import check_outside_log_dirs
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store_path import StorePath

if TYPE_CHECKING:
    from snaprebuild.cluster.fleet.fleet_partition import FleetPartition
    from snaprebuild.cluster.fleet.restart_plan import Restart

__all__ = ["ElectionMoment", "LeaderElection", "elections_of", "write_elections"]


class LeaderElection(Part, frozen=True):
    """The replicas of a partition for an election."""

    topic: str
    partition: Natural
    topic_partition: str
    replicas: Sequence[Natural]
    """In the order that makes the first one the preferred leader."""
    replicas_before: Sequence[Natural]
    """The replicas in their present order."""


class ElectionMoment(Part, frozen=True):
    """Elections of one moment."""

    after_step: Positive | None
    """Number of the step, from 1, after which its broker must be in sync again; null for now."""
    after_node_id: Natural | None
    """The broker of that step."""
    partitions: Sequence[LeaderElection]

    @property
    def name(self) -> str:
        """The beginning of the names of its files."""
        return "now" if self.after_step is None else f"step-{self.after_step}"


def elections_of(partitions: Iterable[FleetPartition], steps: Sequence[Restart], *, risky: bool) -> tuple[ElectionMoment, ...]:
    """The leaders to elect now and after each restart.

    Partitions with a condition on their election (``FleetPartition.condition``) are left out: for example, the broker is not in sync by
    the metadata log. Partitions that are being reassigned are left out too. A broker without a replica is never named: the reassignment
    would give it one.

    Args:
        partitions: judged, with what the metadata log says of each.
        steps: the restarts in their order.
        risky: also those that may delete data (KAFKA-20732), or of which that is not known.
    """
    nodes = [step.node_id for step in steps]
    step_of = {key: number for number, step in enumerate(steps, 1) for key in step.keys}
    due: dict[int, list[LeaderElection]] = {}
    for partition in partitions:
        placement = partition.placement
        is_safe = risky or partition.election_risk is None or partition.election_risk.outcome is Risk.NOT_AFFECTED
        if placement is None or placement.is_reassigned or partition.condition is not None or not is_safe:
            continue
        leads_already = placement.leader == partition.elect and placement.replicas[:1] == (partition.elect,)
        if partition.elect is not None and partition.elect in placement.replicas and not leads_already:
            order = (partition.elect, *(node for node in placement.replicas if node != partition.elect))
            election = LeaderElection(partition.key[0], partition.key[1], partition.name, order, placement.replicas)
            due.setdefault(step_of.get(partition.key, 0), []).append(election)
    moments = []
    for step, elections in sorted(due.items()):
        restarted = nodes[step - 1] if step else None
        moments.append(ElectionMoment(step or None, restarted, elections))
    return tuple(moments)


def write_elections(elections: Iterable[ElectionMoment], directory: str) -> list[str]:
    """Writes the files of each moment: ``NAME-reassignment.json``, ``NAME-election.json``, ``NAME-reassignment-back.json``.

    Args:
        elections: as ``elections_of`` gives them.
        directory: made if need be; it has to be empty.

    Returns:
        Their paths.

    Raises:
        UsageError: what is there of the path is no directory.
        RefusedError: something is there already, or it is among the files of a broker, however deep.
        WriteFailedError: it cannot be written.
    """
    check_output(StorePath(LOCAL, os.path.abspath(directory)), [directory], (), option="--elections")
    check_outside_log_dirs(directory)
    try:
        make_directories(directory)
        if os.listdir(directory):
            raise RefusedError("is not empty: elections of another moment are not replaced", path=directory)
    except OSError as error:
        raise WriteFailedError.from_os_error(error, "cannot be made", directory) from error
    paths = []
    for moment in elections:
        for kind, text in _files(moment):
            path = os.path.join(directory, f"{moment.name}-{kind}.json")
            write_text_file(path, [text])
            paths.append(path)
    return paths


def _files(moment: ElectionMoment) -> Iterator[tuple[str, str]]:
    reordered = [partition for partition in moment.partitions if partition.replicas != partition.replicas_before]
    if reordered:
        yield "reassignment", _reassignment((each, each.replicas) for each in reordered)
    yield "election", _lines("", ({"topic": partition.topic, "partition": partition.partition} for partition in moment.partitions))
    if reordered:
        yield "reassignment-back", _reassignment((each, each.replicas_before) for each in reordered)


def _reassignment(orders: Iterable[tuple[LeaderElection, Sequence[int]]]) -> str:
    return _lines(
        '"version": 1, ', ({"topic": each.topic, "partition": each.partition, "replicas": list(order)} for each, order in orders)
    )


def _lines(head: str, partitions: Iterable[dict[str, object]]) -> str:
    return f'{{{head}"partitions": [\n' + ",\n".join(map(json.dumps, partitions)) + "\n]}\n"
