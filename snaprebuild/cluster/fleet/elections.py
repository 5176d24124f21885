"""Elections as files that Kafka's own tools read: the leaders to elect now and after each restart.

``kafka-leader-election --election-type preferred`` elects the first broker of a partition's replicas, and no other one can be named.
Therefore two files belong together. One is for ``kafka-reassign-partitions``: it has the same replicas in another order and moves no data.
The other is for the election. A third file has the original order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snaprebuild.cluster.fleet.election_risk import Risk
from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.snapshots.destination.output_directory import check_output
from snaprebuild.storage.local.directories import make_directories
from snaprebuild.storage.local.document_file import write_text_file
from snaprebuild.storage.local.log_dir_guard import check_outside_log_dirs
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store_path import StorePath

if TYPE_CHECKING:
    from snaprebuild.cluster.fleet.fleet_partition import FleetPartition
    from snaprebuild.cluster.fleet.restart_plan import Restart

__all__ = ["Election", "Elections", "elections_of", "write_elections"]


@dataclass(frozen=True, slots=True)
class Election:
    """A partition that another broker is to lead.

    Attributes:
        topic: name.
        partition: number.
        replicas: brokers in the order that makes the wanted one the preferred leader.
        replicas_before: the same brokers in their order of now.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    replicas_before: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Elections:
    """Those of one moment.

    Attributes:
        step: of the restarts, from 1 on, after which they are due, when its broker is in sync again; 0 for now.
        elections: by topic and partition, at least one.
    """

    step: int
    elections: tuple[Election, ...]

    @property
    def name(self) -> str:
        """The beginning of the names of its files."""
        return "now" if self.step == 0 else f"step-{self.step}"


def elections_of(partitions: Iterable[FleetPartition], steps: Iterable[Restart], *, risky: bool) -> tuple[Elections, ...]:
    """The leaders to elect now and after each restart.

    Partitions with a condition on their election (``FleetPartition.condition``) are left out: for example, the broker is not in sync by
    the metadata log. Partitions that are being reassigned are left out too. A broker without a replica is never named: the reassignment
    would give it one.

    Args:
        partitions: judged, with what the metadata log says of each.
        steps: the restarts in their order.
        risky: also those that may delete data (KAFKA-20732), or of which that is not known.
    """
    step_of = {key: number for number, step in enumerate(steps, 1) for key in step.partitions}
    due: dict[int, list[Election]] = {}
    for each in partitions:
        placement = each.placement
        is_safe = risky or each.risk is None or each.risk.outcome is Risk.NOT_AFFECTED
        if placement is None or placement.is_reassigned or each.condition is not None or not is_safe:
            continue
        leads_already = placement.leader == each.elect and placement.replicas[:1] == (each.elect,)
        if each.elect is not None and each.elect in placement.replicas and not leads_already:
            order = (each.elect, *(node for node in placement.replicas if node != each.elect))
            due.setdefault(step_of.get(each.key, 0), []).append(Election(each.key[0], each.key[1], order, placement.replicas))
    return tuple(Elections(step, tuple(elections)) for step, elections in sorted(due.items()))


def write_elections(elections: Iterable[Elections], directory: str) -> list[str]:
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
        raise WriteFailedError(f"cannot be made: {error.strerror}", path=directory, errno=error.errno) from error
    written = []
    for moment in elections:
        for kind, text in _files(moment):
            path = os.path.join(directory, f"{moment.name}-{kind}.json")
            write_text_file(path, [text])
            written.append(path)
    return written


def _files(moment: Elections) -> Iterator[tuple[str, str]]:
    reordered = [each for each in moment.elections if each.replicas != each.replicas_before]
    if reordered:
        yield "reassignment", _reassignment((each, each.replicas) for each in reordered)
    yield "election", _lines("", ({"topic": each.topic, "partition": each.partition} for each in moment.elections))
    if reordered:
        yield "reassignment-back", _reassignment((each, each.replicas_before) for each in reordered)


def _reassignment(orders: Iterable[tuple[Election, tuple[int, ...]]]) -> str:
    return _lines(
        '"version": 1, ', ({"topic": each.topic, "partition": each.partition, "replicas": list(order)} for each, order in orders)
    )


def _lines(head: str, partitions: Iterable[dict[str, object]]) -> str:
    return f'{{{head}"partitions": [\n' + ",\n".join(map(json.dumps, partitions)) + "\n]}\n"
