"""``--assume NAME=VALUE``: values that only a live cluster has."""

from __future__ import annotations

import pytest
from in_process import snaprebuild
from manifests import FIXTURES

LEADER = (FIXTURES / "follower-lost-state" / "node1", FIXTURES / "follower-lost-state" / "remote", "--topic", "payments")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("high_watermark", "--assume: expected NAME=VALUE with one of leader_epoch, high_watermark, remote_storage; found "),
        ("highest_remote=5", "--assume: expected NAME=VALUE with one of leader_epoch, "),
        ("high_watermark=-1", "--assume high_watermark: expected a number from 0 to 9223372036854775807, found '-1'"),
        ("high_watermark=", "--assume high_watermark: expected a number from 0 to 9223372036854775807, found ''"),
        ("remote_storage=true", "--assume remote_storage: expected one of on, off, found 'true'"),
    ],
)
def test_what_cannot_be_assumed(text: str, said: str) -> None:
    run = snaprebuild("follower", "offsets", *LEADER, "--assume", text)
    assert (run.exit_code, run.stdout) == (2, "")
    assert said in run.stderr
    assert run.stderr.count("\n") == 1


def test_one_value_for_one_name() -> None:
    run = snaprebuild("follower", "offsets", *LEADER, "--assume", "leader_epoch=5", "--assume", "leader-epoch=6")
    assert (run.exit_code, "--assume: leader_epoch is given twice" in run.stderr) == (2, True)


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
