"""Remote storage with one fault each, next to the leader's log and a replica that started from it: for tests of what each verb answers.

All are the bundled healthy store with one change that is made here, so that what is wrong is known without the code under test.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from every_verb import HEALTHY, healthy
from log_dirs import EMPTY_SNAPSHOT

Change = Callable[[Path], None]
"""Makes a fault in ``remote`` or ``metadata`` of a place."""

MIDDLE = 56
"""Start offset of the copy that gets the fault: one is below it, and one above."""


class StoreFault(NamedTuple):
    """A store with one fault.

    Attributes:
        name: of the fault.
        change: makes it.
        wrong: snapshots that a replay proves wrong.
        damaged: copies that cannot be read whole, for a verb that finds any; of an unfinished one only without the metadata log.
    """

    name: str
    change: Change
    wrong: int = 0
    damaged: int = 0


def write_store(place: Path) -> None:
    """The healthy store in ``remote``, its metadata log in ``metadata``, the leader's log in ``log``, and a follower in ``follower``.

    The follower has the segments from 116 on, and the right snapshots there.
    """
    shutil.copytree(HEALTHY / "tier" / "remote", place / "remote")
    shutil.copytree(HEALTHY / "tier" / "metadata", place / "metadata")
    shutil.copytree(HEALTHY / "log", place / "log")
    (place / "log" / "meta.properties").write_text("version=0\nbroker.id=1\n")  # no registration has to show its disk
    for name, data in healthy().items():
        folder, _, path = name.partition("/")
        if folder == "lost" and not name.endswith(".snapshot"):
            target = place / "follower" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    for offset in (116, 173):
        snapshot = f"{offset:020d}.snapshot"
        shutil.copy(place / "log" / "payments-0" / snapshot, place / "follower" / "payments-0" / snapshot)


def _file(place: Path, suffix: str, start: int = MIDDLE) -> Path:
    (path,) = (place / "remote").rglob(f"{start:020d}-*{suffix}")
    return path


def _flip(place: Path) -> None:
    path = _file(place, ".log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _truncate(place: Path) -> None:
    path = _file(place, ".log")
    path.write_bytes(path.read_bytes()[:-40])


def _torn_snapshot(place: Path) -> None:
    _file(place, ".snapshot").write_bytes(b"\0" * 30)


def _older_snapshot(place: Path) -> None:
    """The snapshot of the copy below takes its place, as if it had never been written again."""
    shutil.copy(_file(place, ".snapshot", 0), _file(place, ".snapshot"))


def _empty_snapshot(place: Path) -> None:
    _file(place, ".snapshot").write_bytes(EMPTY_SNAPSHOT)


def _zero_bytes(place: Path) -> None:
    _file(place, ".snapshot").write_bytes(b"")


def _without_segment(place: Path) -> None:
    _file(place, ".log").unlink()


def _without_epochs(place: Path) -> None:
    _file(place, ".leader_epoch_checkpoint").unlink()


def _without_copy(place: Path) -> None:
    for path in (place / "remote").rglob(f"{MIDDLE:020d}-*"):
        path.unlink()


def _unfinished(place: Path) -> None:
    for name in ("remote", "metadata"):
        shutil.rmtree(place / name)
        shutil.copytree(HEALTHY.parent / "unfinished-upload" / name, place / name)


def _phantom(place: Path) -> None:
    for name in ("remote", "metadata"):
        shutil.rmtree(place / name)
        shutil.copytree(HEALTHY.parent / "phantom-upload" / name, place / name)


def _empty(place: Path) -> None:
    shutil.rmtree(place / "remote")
    (place / "remote").mkdir()


def _elsewhere(place: Path) -> None:
    """The objects are below another prefix than the one that is named: a file of something else is there."""
    shutil.rmtree(place / "remote")
    (place / "remote").mkdir()
    (place / "remote" / "readme").write_bytes(b"no object of a plugin")


def _torn_index(place: Path) -> None:
    path = _file(place, ".timeindex")
    path.write_bytes(path.read_bytes() + b"\0\0\0")


def _nothing(place: Path) -> None:
    del place


FAULTS = (
    StoreFault("healthy", _nothing),
    StoreFault("a byte of a segment is flipped", _flip, damaged=1),
    StoreFault("a segment is cut", _truncate, damaged=1),
    StoreFault("a snapshot does not parse", _torn_snapshot, wrong=1),
    StoreFault("a snapshot is an older one", _older_snapshot, wrong=1),
    StoreFault("a snapshot is empty", _empty_snapshot, wrong=1),
    StoreFault("a snapshot has no bytes", _zero_bytes, wrong=1),
    StoreFault("a segment is missing", _without_segment, damaged=1),
    StoreFault("an object is missing", _without_epochs, damaged=1),
    StoreFault("a copy is missing", _without_copy, damaged=1),
    StoreFault("a copy is unfinished", _unfinished, damaged=1),
    StoreFault("a copy never began", _phantom),
    StoreFault("an index is torn", _torn_index, damaged=1),
    StoreFault("the bucket is empty", _empty, damaged=3),
    StoreFault("it is another prefix", _elsewhere, damaged=3),
)
