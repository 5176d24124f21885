"""Snapshots that the next start removes or empties: `verify` and `before-start` report them if `scan` does."""

from pathlib import Path

import pytest
from command import in_json
from log_dirs import EMPTY_SNAPSHOT, copy_of

CODES = {"removed-at-next-start", "empty-at-next-start"}


def without_an_index(logs: Path) -> None:
    """The start recovers the segment, and removes what is above it."""
    (logs / "mixed-0" / f"{5737:020d}.index").unlink()


def without_two_indexes(logs: Path) -> None:
    (logs / "mixed-0" / f"{687:020d}.index").unlink()
    (logs / "mixed-0" / f"{5737:020d}.index").unlink()


def killed(logs: Path) -> None:
    """The start recovers from the recovery point, and writes snapshots of its own."""
    (logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (logs / "recovery-point-offset-checkpoint").write_text("0\n1\nmixed 0 3000\n")


def emptied(logs: Path) -> None:
    snapshots = sorted((logs / "mixed-0").glob("*.snapshot"))
    snapshots[-1].write_bytes(EMPTY_SNAPSHOT)
    killed(logs)


def untouched(_: Path) -> None:
    """Nothing is lost."""


def reported(verb: str, logs: Path, *options: str) -> dict[tuple[str, str], str]:
    """Messages by code and path."""
    findings = in_json(verb, logs, *options).document["findings"]
    return {(each["code"], each["path"]): each["message"] for each in findings if each["code"] in CODES}


@pytest.mark.parametrize("change", [without_an_index, without_two_indexes, killed, emptied, untouched])
@pytest.mark.parametrize("fixture", ["kafka4-mixed", "kafka27-mixed"])
def test_three_verbs_report_the_same_losses(fixture: str, change: object, tmp_path: Path) -> None:
    logs = copy_of(fixture, tmp_path)
    if fixture == "kafka27-mixed" and change in (without_an_index, without_two_indexes):
        (logs / "mixed-0" / f"{7045:020d}.index").unlink()
    else:
        assert callable(change)
        change(logs)
    expected = reported("scan", logs)
    assert reported("verify", logs) == expected
    assert reported("before-start", logs, "--dry-run") == expected
    if change is untouched:
        assert expected == {}
    if fixture == "kafka4-mixed" and change is without_an_index:
        (message,) = expected.values()
        assert message == "the broker removes 1 snapshot at its next start and writes none instead: 6776"


def test_a_loss_of_snapshots_alone_holds_no_broker(tmp_path: Path) -> None:
    """It is a note of `before-start`: the start loses no record by it."""
    logs = copy_of("kafka4-mixed", tmp_path)
    without_an_index(logs)
    findings = in_json("before-start", logs, "--dry-run").document["findings"]
    assert {each["severity"] for each in findings if each["code"] in CODES} == {"note"}
