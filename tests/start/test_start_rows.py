"""Rows of the table of states that lose nothing: what ``scan`` prints, and that ``before-start --fail-closed`` starts the broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from command import snaprebuild, snaprebuild_process
from log_dirs import snapshot_name
from sentences import CORRECTS_NOTHING, NONE_MISSING
from stopped_broker import END, made

from formats.partition.file_names import segment_file_name

RELEASE = ("--kafka-release", "4.3.1")


def _missing(directory: Path) -> None:
    (directory / snapshot_name(10)).unlink()


def _killed(directory: Path) -> None:
    (directory.parent / ".kafka_cleanshutdown").unlink()
    (directory / snapshot_name(END)).unlink()


def _empty_log_without_id(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    (directory / segment_file_name(0)).write_bytes(b"")
    for name in ("recovery-point", "replication"):
        (directory.parent / f"{name}-offset-checkpoint").write_text("0\n0\n")


def _no_epochs(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_bytes(b"")


def _wrong(directory: Path) -> None:
    path = directory / snapshot_name(10)
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.write_bytes(bytes(data))


class Row(NamedTuple):
    """A state, the first words of ``scan``, its exit code, the verb of the next command, and whether a snapshot at 10 is there after
    ``before-start``."""

    number: int
    change: Callable[[Path], None]
    first: str
    exit_code: int
    following: str | None
    has_snapshot: bool


ROWS = (
    Row(2, _missing, "1 snapshot missing in 1 of 1 partition", 1, "plan", has_snapshot=True),
    Row(
        5,
        _killed,
        f"{NONE_MISSING}1 partition. Unclean stop: the start recovers 1 partition",
        0,
        "verify",
        has_snapshot=True,
    ),
    Row(
        12,
        _empty_log_without_id,
        f"{NONE_MISSING}1 partition. 1 old replica will be set aside.",
        0,
        "verify",
        has_snapshot=False,
    ),
    Row(13, _no_epochs, "orders-0 has no leader epochs: nothing of it can be uploaded.", 1, None, has_snapshot=True),
    Row(22, _wrong, "", 1, "verify", has_snapshot=True),
)


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_the_broker_starts(tmp_path: Path, row: Row) -> None:
    """Remote storage is off by its ``server.properties``, so that no row is one of cut leader epochs."""
    directory = made(tmp_path)
    row.change(directory)
    properties = tmp_path / "server.properties"
    properties.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={directory.parent}\n")
    selected = ("--server-properties", properties, *RELEASE)
    run = snaprebuild("scan", *selected)
    assert run.text.startswith(row.first)
    assert run.exit_code == row.exit_code
    following = run.text.partition(" Next: ")[2]
    assert following.startswith(CORRECTS_NOTHING if row.following is None else f"snaprebuild {row.following} "), run.text
    witness = tmp_path / "started"
    snaprebuild_process("before-start", *selected, "--fail-closed", "--", "touch", witness)
    assert witness.exists()
    assert (directory / snapshot_name(10)).exists() is row.has_snapshot
