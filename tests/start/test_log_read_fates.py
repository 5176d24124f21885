"""Fates that `verify` sees in the log and `scan` cannot. Expected values: the results of Kafka's classes for the states of
``tests/support/start_states`` (``tests/broker/start_fates.toml``)."""

from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import TRANSACTIONAL, batch, flip, marker, snapshot_name
from sentences import NO_START, RECORDS_REMOVED
from stopped_broker import END, append, last_segment, made

RELEASE = ("--kafka-release", "4.3.1")
HEAD_BYTES = 61


def codes(verb: str, directory: Path) -> list[str]:
    """Findings that are damage of the start."""
    return [
        each["code"] for each in in_json(verb, directory.parent, *RELEASE).document["findings"] if each["severity"] == "damaged"
    ]


def _recovery_from(directory: Path, offset: int) -> None:
    (directory.parent / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")


def _plain_write(directory: Path) -> None:
    append(last_segment(directory), batch(END, producer_id=9, attributes=TRANSACTIONAL))
    append(last_segment(directory), batch(END + 1, producer_id=9, sequence=1))


def test_damage_of_an_earlier_segment_above_the_recovery_point(tmp_path: Path) -> None:
    """The second segment is cut at its fourth batch, and the third is deleted."""
    directory = made(tmp_path, clean=False)
    _recovery_from(directory, 5)
    flip(directory / f"{10:020d}.log", 3 * len(batch(10, producer_id=7)) + HEAD_BYTES + 2)
    assert snaprebuild("verify", directory.parent, *RELEASE).text.startswith(
        f"{RECORDS_REMOVED}13 to 29 of orders-0, which were acknowledged."
    )
    assert "lost-log-end" in codes("verify", directory)
    assert "lost-log-end" not in codes("scan", directory), "scan did not read it"


@pytest.mark.parametrize(("point", "clean"), [(20, False), (5, True)])
def test_damage_that_no_start_reads(tmp_path: Path, point: int, *, clean: bool) -> None:
    """Below the segment of the recovery point, or after a clean stop."""
    directory = made(tmp_path, clean=clean)
    _recovery_from(directory, point)
    flip(directory / f"{10:020d}.log", HEAD_BYTES + 2)
    assert "lost-log-end" not in codes("verify", directory)


@pytest.mark.parametrize("clean", [True, False])
def test_a_write_outside_of_an_open_transaction(tmp_path: Path, *, clean: bool) -> None:
    directory = made(tmp_path, clean=clean)
    _plain_write(directory)
    line = f"{NO_START}a write outside of the open transaction of its producer (orders-0)."
    assert line in snaprebuild("verify", directory.parent, *RELEASE).text
    assert "write-outside-transaction" not in codes("scan", directory)


def test_such_a_write_below_the_newest_snapshot_is_not_read(tmp_path: Path) -> None:
    directory = made(tmp_path)
    _plain_write(directory)
    (directory / snapshot_name(END)).rename(directory / snapshot_name(END + 2))
    (directory.parent / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {END + 2}\n")
    assert "write-outside-transaction" not in codes("verify", directory)


@pytest.mark.parametrize("clean", [True, False])
def test_a_write_after_the_transaction_has_ended(tmp_path: Path, *, clean: bool) -> None:
    directory = made(tmp_path, clean=clean)
    append(last_segment(directory), batch(END, producer_id=9, attributes=TRANSACTIONAL))
    append(last_segment(directory), marker(END + 1, 9))
    append(last_segment(directory), batch(END + 2, producer_id=9, sequence=1))
    assert "write-outside-transaction" not in codes("verify", directory)
