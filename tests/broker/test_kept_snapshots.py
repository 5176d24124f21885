"""Files that are written for a broker are there, untouched, after its next start by Kafka's own ``LogManager``."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import snaprebuild
from kept_snapshots import RELEASES, kept_by
from start_fates import fates
from start_states import STATES, StartState
from start_states.expected import server_properties
from start_states.kept import read_table

BY_DAY = ("3.9.2", "4.3.1")
EACH_RELEASE = [pytest.param(each, marks=[] if each in BY_DAY else pytest.mark.night) for each in RELEASES]
AS_OF = ("--as-of", "1795600000000")


@pytest.mark.kafka
@pytest.mark.full
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_a_release_keeps_what_the_table_says(release: str, tmp_path: Path) -> None:
    """A table that is made again is ``python tests/broker/kept_snapshots.py RELEASE``."""
    assert kept_by(release, STATES, tmp_path) == read_table()[release]


@pytest.mark.kafka
@pytest.mark.full
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_a_start_removes_and_rewrites_nothing_that_was_rebuilt(release: str, tmp_path: Path) -> None:
    """Each state begins without any snapshot. Kafka alone decides, also about the snapshots at log ends."""
    written: dict[str, dict[str, set[int]]] = {}

    def rebuild(state: StartState, root: Path) -> None:
        for path in root.glob("*/*-0/*.snapshot"):
            if path.is_file():
                path.unlink()
        before = set(root.rglob("*.snapshot"))
        properties = server_properties(root, state)
        snaprebuild("rebuild", "--server-properties", properties, "--kafka-release", release, *AS_OF)
        properties.unlink()
        for path in set(root.rglob("*.snapshot")) - before:
            written.setdefault(state.name, {}).setdefault(str(path.parent.relative_to(root)), set()).add(int(path.stem))

    lost = {}
    count = 0
    for name, fate in fates(release, STATES, tmp_path, rebuild).items():
        for path, offsets in written.get(name, {}).items():
            partition = fate.get("partitions", {}).get(path)
            if partition is None:  # the broker does not start, or does not load it for a cause that its own image alone shows
                continue
            count += len(offsets)
            kept = set(partition["snapshots"]) - set(partition["written"])
            if not offsets <= kept:
                lost[f"{name}/{path}"] = sorted(offsets - kept)
    assert not lost
    assert count > 300
