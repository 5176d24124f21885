"""A metadata log that lost its end after a clean stop is a fate of the next start, for each command that asks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import batch_positions
from manifests import FIXTURES
from metadata_dirs import newest_segment, torn

METADATA = "__cluster_metadata-0"
NODE = FIXTURES / "kraft-cluster3" / "node1"
"""Stopped cleanly by 4.3.1: the last batch of its metadata log is at 347, and the snapshot that the stop wrote at 348."""

END = 348


def cut_at_a_batch(node: Path) -> None:
    log = newest_segment(node)
    os.truncate(log, batch_positions(log)[-2])


def killed(node: Path) -> None:
    (node / ".kafka_cleanshutdown").unlink()


def killed_and_torn(node: Path) -> None:
    """The broker was killed: unflushed bytes are gone, whichever files reached the disk before."""
    killed(node)
    torn(node)


def without_indexes(node: Path) -> None:
    """A node makes them anew."""
    for path in (node / METADATA).glob("*index"):
        path.unlink()


def whole(node: Path) -> None:
    assert (node / METADATA / f"{END:020d}.snapshot").exists()


FAULTS: tuple[Callable[[Path], None], ...] = (cut_at_a_batch, torn)
HEALTHY: tuple[Callable[[Path], None], ...] = (whole, killed, killed_and_torn, without_indexes)
COMMANDS = (("verify",), ("plan",), ("rebuild", "--dry-run"), ("before-start", "--dry-run"), ("cluster", "check"))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return Path(shutil.copytree(NODE, tmp_path / "node"))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_command_reports_it(fault: Callable[[Path], None], node: Path) -> None:
    fault(node)
    run = snaprebuild("scan", node)
    first = run.stdout.splitlines()[0]
    assert first.startswith(f"{METADATA} lost its end: ")
    assert first.endswith(f", a snapshot is at {END}.")
    assert run.exit_code == 4
    for words in COMMANDS:
        assert snaprebuild(" ".join(words), node / METADATA if words[0] == "cluster" else node).exit_code != 0, words


@pytest.mark.parametrize("form", HEALTHY)
def test_healthy_forms_raise_no_alarm(form: Callable[[Path], None], node: Path) -> None:
    form(node)
    run = in_json("scan", node)
    assert run.exit_code == 0
    assert [fate for fate in run.document["fates"] if fate["path"].endswith(METADATA)] == []


def test_no_bundled_metadata_log_lost_its_end() -> None:
    """Nodes of real brokers that stopped cleanly, were killed, or lost records of their partitions."""
    nodes = [path.parent for path in FIXTURES.glob(f"**/{METADATA}") if "damaged" not in path.parts]
    assert len(nodes) > 8
    for each in nodes:
        fates = in_json("scan", each).document["fates"]
        assert [fate for fate in fates if fate["path"].endswith(METADATA)] == [], each
