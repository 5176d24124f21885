"""States of the snapshots of a log directory, made from bundled ones, with what is missing, wrong and suspect in each.

The numbers are those of the changes that are made here, and of the manifests: ``kafka27-mixed`` has no snapshot at 14 boundaries.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from log_dirs import EMPTY_SNAPSHOT, copy_of, snapshot_name
from other_process import live_broker
from stopped_broker import made

LACKING = 14
"""Boundaries of ``kafka27-mixed`` without a snapshot."""

Build = Callable[[Path], list[str]]
"""Makes a state in an empty directory; returns the paths and options that select it."""


class SnapshotState(NamedTuple):
    """A state of a log directory.

    Attributes:
        name: of the state.
        build: makes it.
        missing: boundaries that need a snapshot and have none.
        corrupt: snapshots that do not parse.
        suspect: snapshots that are empty where a later one knows of producers below. A replay proves each of them wrong.
        is_held: a broker holds the log directory.
        is_judged: a replay is possible, so that `verify` knows each number.
    """

    name: str
    build: Build
    missing: int = 0
    corrupt: int = 0
    suspect: int = 0
    is_held: bool = False
    is_judged: bool = True

    def hold(self, words: list[str], stack: contextlib.ExitStack) -> None:
        """A broker holds the directory until the stack is closed."""
        if self.is_held:
            stack.enter_context(live_broker(Path(words[0])))


def _healthy(place: Path) -> list[str]:
    return [str(copy_of("kafka4-mixed", place))]


def _missing(place: Path) -> list[str]:
    return [str(copy_of("kafka27-mixed", place))]


def _with(build: Build, offset: int, data: bytes) -> Build:
    """A state with other bytes in a snapshot of ``mixed-0`` that is there."""

    def change(place: Path) -> list[str]:
        words = build(place)
        path = Path(words[0]) / "mixed-0" / snapshot_name(offset)
        assert path.exists()
        path.write_bytes(data)
        return words

    return change


def stopped_without(place: Path) -> list[str]:
    """A clean stop left no snapshot of the one segment of ``plain-0``: the next start writes an empty one."""
    logs = copy_of("kafka4-mixed", place)
    (path,) = (logs / "plain-0").glob("*.snapshot")
    path.unlink()
    return [str(logs)]


def _bare(place: Path) -> list[str]:
    """Partitions without the files of a broker."""
    logs = copy_of("kafka27-mixed", place)
    for path in logs.iterdir():
        if path.is_file():
            path.unlink()
    return [str(logs)]


def _without_index(place: Path) -> list[str]:
    """The next start makes an index anew, and removes snapshots."""
    directory = made(place)
    (directory / f"{10:020d}.index").unlink()
    return [str(directory.parent), "--kafka-release", "4.3.1"]


def _stray(place: Path) -> list[str]:
    """The next start sets the partition aside, which has no topic id."""
    directory = made(place)
    (directory / "partition.metadata").unlink()
    (directory / snapshot_name(20)).unlink()
    return [str(directory.parent), "--kafka-release", "4.3.1"]


def _without_topic_ids(place: Path) -> list[str]:
    """Remote storage is on, and the protocol is too old for topic ids."""
    logs = copy_of("kafka27-mixed", place)
    path = place / "server.properties"
    settings = "broker.id=1\nzookeeper.connect=localhost:2181\nremote.log.storage.system.enable=true\n"
    path.write_text(f"{settings}inter.broker.protocol.version=2.7\nlog.dirs={logs}\n")
    return ["--server-properties", str(path), "--kafka-release", "3.9.2"]


def _unread(place: Path) -> list[str]:
    """A small file cannot be opened, also not by root: a link to itself."""
    logs = copy_of("kafka27-mixed", place)
    path = logs / "logappend-0" / "leader-epoch-checkpoint"
    path.unlink()
    path.symlink_to(path.name)
    return [str(logs)]


def _nothing(place: Path) -> list[str]:
    (place / "empty").mkdir()
    return [str(place / "empty")]


def _never_uploaded(place: Path) -> list[str]:
    """Kafka uploads no segment of message format 1, with a snapshot or without."""
    return [str(copy_of("magicup", place))]


def _inside_a_segment(place: Path) -> list[str]:
    """A wrong snapshot is at no boundary: nothing takes its place."""
    logs = copy_of("kafka4-mixed", place)
    (logs / "mixed-0" / snapshot_name(100)).write_bytes(TORN)
    return [str(logs)]


def _compacted(place: Path) -> list[str]:
    """No replay proves a snapshot of a compacted topic."""
    return [str(copy_of("kafka27-compacted", place))]


TORN = b"torn"
IN_HEALTHY = 4142
IN_MISSING = 7637
STATES = (
    SnapshotState("healthy", _healthy),
    SnapshotState("compacted", _compacted),
    SnapshotState("missing", _missing, missing=LACKING),
    SnapshotState("corrupt", _with(_healthy, IN_HEALTHY, TORN), corrupt=1),
    SnapshotState("suspect", _with(_healthy, IN_HEALTHY, EMPTY_SNAPSHOT), suspect=1),
    SnapshotState("missing and corrupt", _with(_missing, IN_MISSING, TORN), missing=LACKING, corrupt=1),
    SnapshotState("missing and suspect", _with(_missing, IN_MISSING, EMPTY_SNAPSHOT), missing=LACKING, suspect=1),
    SnapshotState("missing, held", _missing, missing=LACKING, is_held=True),
    SnapshotState("suspect, held", _with(_healthy, IN_HEALTHY, EMPTY_SNAPSHOT), suspect=1, is_held=True),
    SnapshotState("missing and suspect, held", _with(_missing, IN_MISSING, EMPTY_SNAPSHOT), missing=14, suspect=1, is_held=True),
    SnapshotState("wrong at no boundary", _inside_a_segment, corrupt=1),
    SnapshotState("never uploaded", _never_uploaded, missing=4),
    SnapshotState("no files of a broker", _bare, missing=LACKING),
    SnapshotState("without topic ids", _without_topic_ids, missing=LACKING),
    SnapshotState("an index is missing", _without_index),
    SnapshotState("stray", _stray, missing=1),
    SnapshotState("stopped without a snapshot", stopped_without, missing=1),
    SnapshotState("unread", _unread, missing=LACKING, is_judged=False),
    SnapshotState("nothing", _nothing, is_judged=False),
)
