"""`scan --quiet`: silence is exit code 0, and anything else begins with the first line."""

import shutil
from pathlib import Path

import pytest
from command import snaprebuild
from other_process import live_broker
from stopped_broker import made

from snaprebuild.broker.status import StatusWord

RELEASE = ("--kafka-release", "4.3.1")


def test_nothing_is_printed_when_all_is_well(tmp_path: Path) -> None:
    """A deleted topic, a partition that moves, and a killed broker are normal life."""
    directory = made(tmp_path)
    shutil.copytree(directory, directory.parent / f"gone-0.{'a' * 32}-delete")
    shutil.copytree(directory, directory.parent / f"orders-1.{'b' * 32}-future")
    (directory.parent / ".kafka_cleanshutdown").unlink()
    run = snaprebuild("scan", directory.parent, "--quiet", *RELEASE)
    assert (run.exit_code, run.stdout, run.stderr) == (0, "", "")
    with live_broker(directory.parent):
        run = snaprebuild("scan", directory.parent, "--quiet", *RELEASE)
        assert (run.exit_code, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("what", [StatusWord.FATE, StatusWord.MISSING, StatusWord.WRONG])
def test_what_is_wrong_is_printed(what: StatusWord, tmp_path: Path) -> None:
    directory = made(tmp_path)
    if what is StatusWord.FATE:
        (directory / "partition.metadata").unlink()
    elif what is StatusWord.MISSING:
        (directory / f"{10:020d}.snapshot").unlink()
    else:
        (directory / f"{10:020d}.snapshot").write_bytes(b"torn")
    loud = snaprebuild("scan", directory.parent, *RELEASE)
    quiet = snaprebuild("scan", directory.parent, "--quiet", *RELEASE)
    assert quiet.exit_code == loud.exit_code != 0
    assert quiet.stdout.splitlines() == loud.stdout.splitlines()[: len(quiet.stdout.splitlines())]
    assert quiet.stdout.splitlines()[1].startswith("Next: ")
    assert len(quiet.stdout.splitlines()) == 3, "no table"
    assert quiet.stderr
    assert "note: " not in quiet.stderr
