"""Cells of the table of states that need more than one fault in a log directory: what each command answers, and whether a broker starts.

Rows 3, 18, 20, 21 and 23. Row 19 needs the scans of other brokers (``fleet``), and row 24 a verdict that `cluster source` gives.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from command import snaprebuild, snaprebuild_process
from log_dirs import copy_of, remove_snapshots, snapshot_name
from sentences import AGAIN, FREES_ALL, NONE_MISSING, NOT_READY, ONE_PROVEN_WRONG
from snapshot_by_grammar import build_snapshot
from start_states.building import NODE
from stopped_broker import made

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.cluster.metadata.image_reader import read_image

KRAFT = "process.roles=broker\nnode.id=1\n"
ZOOKEEPER = "broker.id=1\nzookeeper.connect=localhost:2181\n"
REMOTE = "remote.log.storage.system.enable=true\n"


def configured(logs: Path, settings: str) -> Path:
    """The ``server.properties`` of a log directory, next to it."""
    path = logs.parent / "server.properties"
    path.write_text(f"{settings}log.dirs={logs}\n")
    return path


def missing(place: Path) -> Path:
    """A snapshot is missing in a healthy partition."""
    directory = made(place)
    (directory / snapshot_name(10)).unlink()
    return configured(directory.parent, KRAFT)


def without_ids(place: Path) -> Path:
    """A broker of 2.7 whose protocol is still 2.7, with remote storage on."""
    logs = copy_of("kafka27-mixed", place)
    remove_snapshots(logs / "mixed-0")
    return configured(logs, f"{ZOOKEEPER}{REMOTE}inter.broker.protocol.version=2.7\n")


def foreign_ids(place: Path) -> Path:
    """A partition of a node has a producer id that its cluster has yet to give out."""
    node = Path(shutil.copytree(NODE, place / "node"))
    following = read_image(str(node)).fold.image().next_producer_id
    entry = ProducerEntry(following + 8000, 0, 0, 100, 0, int(time.time() * 1000), current_txn_first_offset=-1)
    max((node / "orders-1").glob("*.snapshot")).write_bytes(build_snapshot([entry]))
    return configured(node, KRAFT)


def old_format(place: Path) -> Path:
    """Rolled segments of message format 1, with remote storage on."""
    logs = copy_of("magic1", place)
    return configured(logs, f"{ZOOKEEPER}{REMOTE}inter.broker.protocol.version=3.9\n")


def unread(place: Path) -> Path:
    """A small file cannot be opened, also not by root: a link to itself."""
    directory = made(place)
    path = directory / "leader-epoch-checkpoint"
    path.unlink()
    path.symlink_to(path.name)
    return configured(directory.parent, KRAFT)


class Cell(NamedTuple):
    """The answer of a command: words of its first line, its exit code, the verb of the next command or an advice (None for
    none)."""

    first: str
    exit_code: int
    following: str | None


class Row(NamedTuple):
    """A row of the table of states.

    Attributes:
        number: of the row.
        build: makes the state; returns its ``server.properties``.
        release: that starts the broker.
        cells: by verb.
        is_held: whether ``--fail-closed`` holds the broker.
        options: of ``before-start``.
    """

    number: int
    build: Callable[[Path], Path]
    release: str
    cells: dict[str, Cell]
    is_held: bool = False
    options: tuple[str, ...] = ("--dry-run",)


NO_ID = f"{NOT_READY}4 topics have no id."
INCOMPLETE = "INCOMPLETE: 1 path could not be read"
ROWS = (
    Row(
        3,
        missing,
        "4.3.1",
        {
            "scan": Cell("1 snapshot missing in 1 of 1 partition", 1, "plan"),
            "verify": Cell("1 snapshot is missing", 0, "plan"),
            "plan": Cell("1 snapshot to write in 1 of 1 partition", 0, "rebuild"),
            "before-start": Cell("1 snapshot is missing in 1 partition, and it is not written.", 1, None),
        },
        options=("--deadline", "0"),
    ),
    Row(
        18,
        without_ids,
        "3.9.2",
        {
            "scan": Cell(NO_ID, 1, AGAIN),
            "verify": Cell(NO_ID, 1, AGAIN),
            "plan": Cell(NO_ID, 3, AGAIN),
            "before-start": Cell(NO_ID, 1, None),
        },
    ),
    Row(
        20,
        foreign_ids,
        "4.3.1",
        {
            "scan": Cell(f"{NONE_MISSING}8 partitions.", 1, "verify"),
            "verify": Cell(ONE_PROVEN_WRONG, 1, "plan"),
            # Ids are compared where snapshots are read for what they say: these two look for what is missing.
            "plan": Cell("Nothing to rebuild in 8 partitions.", 0, "verify"),
            "before-start": Cell(f"{NONE_MISSING}8 partitions.", 0, None),
        },
    ),
    Row(
        21,
        old_format,
        "3.9.2",
        {
            "scan": Cell("380.1 KiB cannot be uploaded. `rebuild` frees none of it.", 1, "plan"),
            "verify": Cell("4 snapshots are missing", 0, "plan"),
            "plan": Cell("4 snapshots to write in 1 of 1 partition", 0, "rebuild"),
            "before-start": Cell("Dry run: nothing was written", 0, None),
        },
    ),
    Row(
        23,
        unread,
        "4.3.1",
        {
            verb: Cell(INCOMPLETE, 1, None if verb == "before-start" else AGAIN)
            for verb in ("scan", "verify", "plan", "before-start")
        },
        is_held=True,
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
@pytest.mark.parametrize("verb", ["scan", pytest.param("verify", marks=pytest.mark.full), "plan", "before-start"])
def test_the_answer_of_each_command(row: Row, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    properties, cell = row.build(tmp_path), row.cells[verb]
    options = row.options if verb == "before-start" else ()
    run = snaprebuild(verb, "--server-properties", properties, "--kafka-release", row.release, *options)
    assert cell.first in run.stdout.splitlines()[0]
    assert run.exit_code == cell.exit_code
    following = run.text.partition(" Next: ")[2]
    expected = "" if cell.following is None else f"snaprebuild {cell.following} "
    assert following.startswith(AGAIN if cell.following == AGAIN else expected), run.text


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
@pytest.mark.parametrize("is_closed", [False, True])
def test_whether_the_broker_starts(row: Row, tmp_path: Path, *, is_closed: bool) -> None:
    properties, witness = row.build(tmp_path), tmp_path / "started"
    options = [*row.options, *(["--fail-closed"] if is_closed else [])]
    selected = ("--server-properties", properties, "--kafka-release", row.release)
    snaprebuild_process("before-start", *selected, *options, "--", "touch", witness)
    assert witness.exists() is not (is_closed and row.is_held)


@pytest.mark.parametrize("has_index", [True, False])
def test_what_a_rebuild_frees_only_after_the_next_start(has_index: bool, tmp_path: Path) -> None:
    """For `orders-0` `plan` writes nothing as long as the start removes it again; the other partitions are rebuilt."""
    node = Path(shutil.copytree(NODE, tmp_path / "node"))
    for directory in node.glob("orders-*"):
        remove_snapshots(directory)
    index = min((node / "orders-0").glob("*.index"))
    if not has_index:
        index.unlink()
    scan, plan = snaprebuild("scan", node), snaprebuild("plan", node)
    assert (f"{FREES_ALL}." in scan.text) is has_index
    assert (f"{FREES_ALL}, in part only after the next start." in scan.text) is not has_index
    assert ("of orders-0: the next start makes an index anew" in plan.text) is not has_index
