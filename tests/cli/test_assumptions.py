"""``--assume NAME=VALUE``: values that only a live cluster has."""

from __future__ import annotations

import pytest
from in_process import snaprebuild
from manifests import FIXTURES

LEADER = (FIXTURES / "follower-lost-state" / "node1", FIXTURES / "follower-lost-state" / "remote", "--topic", "payments")


def test_no_setting_assumes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPREBUILD_ASSUME", "remote_storage=true")
    monkeypatch.setenv("SNAPREBUILD_HIGH_WATERMARK", "none")
    assert snaprebuild("follower", "offsets", *LEADER).exit_code == 0
    run = snaprebuild("follower", "offsets", *LEADER, "--set", "high_watermark=5")
    assert (run.exit_code, "--set: 'high_watermark' is no setting" in run.stderr) == (2, True)


def test_the_help_lists_the_names() -> None:
    page = snaprebuild("follower", "plan", "--help-all").stdout
    assert "Assumptions (--assume NAME=VALUE):\n  follower_end N" in page
    assert "Assumptions" not in snaprebuild("scan", "--help-all").stdout
