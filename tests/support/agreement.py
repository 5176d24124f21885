"""The answers of each command about one partition: class and state at each boundary, by the functions that the commands call.

A class is a claim about one boundary. So it must not depend on the command that is asked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from log_dirs import Entries, entries_in
from plans import make_plan
from replays import entries_in as entries_of_array

from snaprebuild import Origin, ReplayOptions, SnapshotRefusedError, ensure_snapshot
from snaprebuild.inspect.explain import Question, explain_producer
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import BoundaryState
from snaprebuild.snapshots.last_stable import KnownOffset, last_stable_offsets
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, open_source
from snaprebuild.snapshots.stage import stage
from snaprebuild.snapshots.verify import verify
from snaprebuild.storage.partition_names import TopicKind

__all__ = ["Moment", "Saying", "disagreements"]

OF_A_WINDOW = {SnapshotClass.LOAD_EQUIVALENT, SnapshotClass.SUPERSET_SAFE}
EXPLAINED_MAX, ENSURED_MAX = 3, 3
"""Producers and boundaries of a partition that are asked for one by one."""

STRENGTH = (
    SnapshotClass.UNSOUND,
    SnapshotClass.UNPROVEN,
    SnapshotClass.SUPERSET_SAFE,
    SnapshotClass.LOAD_EQUIVALENT,
    SnapshotClass.EXACT_FROM_LOG_START,
    SnapshotClass.EXACT,
)
"""The weakest first."""


@dataclass(frozen=True)
class Moment:
    """When producers expire, ms."""

    as_of_ms: int
    expiration_ms: int

    @property
    def clock(self) -> Clock:
        return Clock(self.as_of_ms, self.expiration_ms)


@dataclass(frozen=True)
class Saying:
    """The answer of a command about a boundary; entries are None where it does not show them."""

    snapshot_class: SnapshotClass
    entries: frozenset[object] | None


@dataclass
class _Asked:
    """One log directory, at one moment."""

    logs: Path
    place: Path
    moment: Moment
    counts: Counter[str]
    wrong: list[str] = field(default_factory=list)

    def request(self, **options: object) -> RebuildRequest:
        clock = {"as_of_ms": self.moment.as_of_ms, "expiration_ms": self.moment.expiration_ms}
        return RebuildRequest(paths=(str(self.logs),), **clock, **options).checked()  # type: ignore[arg-type]

    def say(self, name: str, partition: str, offset: int, expected: Saying, found: Saying, *, may_be_window: bool = False) -> None:
        """Compares what a command says with what ``verify`` says."""
        self.counts[name] += 1
        if may_be_window and found.snapshot_class in OF_A_WINDOW:
            self.counts[f"{name}, a window"] += 1
            return
        if found.snapshot_class is not expected.snapshot_class:
            classes = f"{found.snapshot_class.value} instead of {expected.snapshot_class.value}"
            self.wrong.append(f"{partition} at {offset}: {name} says {classes}")
        elif found.entries is not None and found.entries != expected.entries:
            self.wrong.append(f"{partition} at {offset}: {name} has another state")


def disagreements(logs: Path, place: Path, moment: Moment, counts: Counter[str]) -> list[str]:
    """Where commands differ about a boundary of a log directory; one line each.

    Args:
        logs: the log directory.
        place: an empty directory on its file system.
        moment: when producers expire.
        counts: gets how many answers were compared, by command.
    """
    asked = _Asked(logs, place, moment, counts)
    source = open_source([str(logs)])
    states: dict[str, dict[int, BoundaryState]] = {each.directory.path: {} for each in source.partitions}
    whole: dict[str, set[int]] = {}

    def keep(partition: PartitionSource, state: BoundaryState, *_: object) -> None:
        states[partition.directory.path][state.offset] = state
        assert state.judgement, "it is made while the state is there"
        assert state.entries is not None

    verified = verify(source, Run(clock=moment.clock, jobs=1), on_boundary=keep)
    said = {
        path: {offset: Saying(state.judgement.snapshot_class, _entries_of(state)) for offset, state in found.items()}
        for path, found in states.items()
    }
    for verdict in verified.partitions:
        path = verdict.source.directory.path
        whole[path] = {offset for offset, state in states[path].items() if not state.is_cut}
        for each in verdict.outcome.snapshots:
            if each.snapshot_class is not None and each.snapshot_class is not said[path][each.offset].snapshot_class:
                asked.wrong.append(f"{path} at {each.offset}: verify says two classes")
    _ask_rebuild(asked, said)
    for partition in source.partitions:
        if not partition.directory.segments:
            continue
        found = said[partition.directory.path]
        _ask_ensure(asked, partition, found, whole[partition.directory.path])
        _ask_explain(asked, partition, found, whole[partition.directory.path])
        _ask_last_stable(asked, partition, states[partition.directory.path])
    return asked.wrong


def _entries_of(state: BoundaryState) -> frozenset[object]:
    return frozenset(entries_of_array(state.entries).values())


def _ask_rebuild(asked: _Asked, said: dict[str, dict[int, Saying]]) -> None:
    """``plan``, and ``rebuild`` elsewhere, in place without writing, and to a staging directory."""
    requests = {
        "rebuild --out": asked.request(out=str(asked.place / "out"), boundaries="all"),
        "rebuild --dry-run": asked.request(boundaries="all"),
        "stage": asked.request(stage=(str(asked.place / "stage"),)),
    }
    for name, request in requests.items():
        plan = make_plan(request)
        best = {
            (each.source.directory.path, boundary.offset): boundary.expected_class
            for each in plan.partitions
            for boundary in each.boundaries
        }
        starts = {each.source.directory.path: each.replay_index for each in plan.partitions}
        result = (
            stage(plan, None, Run(jobs=1)) if name == "stage" else rebuild(plan, Run(jobs=1), dry_run=name == "rebuild --dry-run")
        )
        for partition in result.partitions:
            path = partition.plan.source.directory.path
            for boundary in partition.boundaries:
                if boundary.snapshot_class is None:
                    asked.counts["without a class"] += 1
                    continue
                entries: Entries | None = None
                if boundary.path is not None and name != "rebuild --dry-run" and Path(boundary.path).is_file():
                    entries = entries_in(Path(boundary.path).read_bytes())
                found = Saying(boundary.snapshot_class, entries)
                if boundary.offset not in said[path]:
                    asked.wrong.append(f"{path} at {boundary.offset}: {name} says {found.snapshot_class.value}, verify nothing")
                    continue
                # Below a window nothing was replayed.
                begins_inside = partition.outcome.replay_index > 0
                if begins_inside and found.snapshot_class is SnapshotClass.UNPROVEN:
                    continue
                asked.say(name, path, boundary.offset, said[path][boundary.offset], found, may_be_window=begins_inside)
                asked.counts["plan"] += 1
                planned = best[path, boundary.offset]
                if starts[path] == 0 and STRENGTH.index(planned) < STRENGTH.index(found.snapshot_class):
                    asked.wrong.append(f"{path} at {boundary.offset}: plan says {planned.value} at best, {name} more")


def _ask_ensure(asked: _Asked, partition: PartitionSource, said: dict[int, Saying], whole: set[int]) -> None:
    moment = asked.moment
    options = ReplayOptions(as_of_ms=moment.as_of_ms, expiration_ms=moment.expiration_ms, allow_unproven=True, allow_unsound=True)
    if partition.topic_kind is TopicKind.CLUSTER_METADATA:
        return
    first = partition.directory.segments[0].base_offset
    for offset in _some(sorted(whole - {first}), ENSURED_MAX):  # the end of a log without batches is no boundary
        try:
            found = ensure_snapshot(partition.directory.path, offset, options=options)
        except SnapshotRefusedError as error:
            if error.snapshot_class is None:
                asked.counts["ensure_snapshot, no state"] += 1
                continue
            asked.say("ensure_snapshot", asked.logs.name, offset, said[offset], Saying(SnapshotClass(error.snapshot_class), None))
            continue
        is_own = found.origin is Origin.ON_DISK
        saying = Saying(found.snapshot_class, None if is_own else entries_in(found.data))
        asked.say("ensure_snapshot", partition.directory.topic_partition, offset, said[offset], saying, may_be_window=True)


def _ask_explain(asked: _Asked, partition: PartitionSource, said: dict[int, Saying], whole: set[int]) -> None:
    source = open_source([partition.directory.path])
    ids = sorted({entry.producer_id for each in said.values() for entry in each.entries or ()})  # type: ignore[attr-defined]
    for offset in _some(sorted(whole), ENSURED_MAX):
        for producer in _some(ids, EXPLAINED_MAX):
            result = explain_producer(source, Question(producer, offset), Run(clock=asked.moment.clock, jobs=1))
            for each in (explanation.explained for explanation in result.partitions):
                if each.snapshot_class is None:
                    asked.counts["explain, no state"] += 1
                    continue
                asked.counts["explain"] += 1
                own = [entry for entry in said[offset].entries or () if entry.producer_id == producer]  # type: ignore[attr-defined]
                where = f"{partition.directory.topic_partition} at {offset}"
                if each.snapshot_class is not said[offset].snapshot_class:
                    classes = f"{each.snapshot_class.value} instead of {said[offset].snapshot_class.value}"
                    asked.wrong.append(f"{where}: explain says {classes}")
                if [each.entry] != (own or [None]):
                    asked.wrong.append(f"{where}: explain has another entry of producer {producer}")


def _ask_last_stable(asked: _Asked, partition: PartitionSource, states: dict[int, BoundaryState]) -> None:
    start = partition.log_start_offset
    for offset in _some(sorted(states), ENSURED_MAX):
        mark = KnownOffset(offset, "the boundary", assumed=False)
        known, damage = last_stable_offsets([(partition, start, mark)], Run(clock=asked.moment.clock, jobs=1))
        if damage:
            asked.counts["last_stable, damaged"] += 1
            continue
        asked.counts["last_stable"] += 1
        state = states[offset]
        opened = [entry.current_txn_first_offset for entry in entries_of_array(state.entries).values()]
        least = min(max(min((first for first in opened if first >= 0), default=offset), start), offset)
        found = known[partition.directory.path]
        if found.offset != least:
            asked.wrong.append(
                f"{partition.directory.topic_partition} at {offset}: the last stable offset is {found.offset}, not {least}"
            )
        begins_inside = partition.directory.segments[0].base_offset > 0
        if found.assumed != (begins_inside and not state.is_complete):
            asked.wrong.append(
                f"{partition.directory.topic_partition} at {offset}: last_stable says {found}, complete is {state.is_complete}"
            )


def _some(values: list[int], most: int) -> list[int]:
    """The first, the last, and some between."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(step * number)] for number in range(most)]
