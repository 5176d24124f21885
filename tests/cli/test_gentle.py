"""How verbs read: what the options say, what a live broker changes, and that all of it ends with the verb."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import in_json, live_broker, snaprebuild
from log_dirs import copy_of
from typer.testing import CliRunner

from snaprebuild.cli.main import app
from snaprebuild.storage import segment_file
from snaprebuild.storage.manners import RATE_BESIDE_BROKER_BYTES, USUAL_MANNERS, Manners, manners
from snaprebuild.storage.priority import Standing, standing

CLOCK = ("--as-of", "2026-11-20", "--expiration-ms", "604800000")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Manners, Standing]]:
    """How this process reads segments, and where it stands, each time that it reads."""
    found: list[tuple[Manners, Standing]] = []
    wait = segment_file.wait_to_read

    def noted(count: int) -> None:
        found.append((manners(), standing()))
        wait(count)

    monkeypatch.setattr(segment_file, "wait_to_read", noted)
    return found


def run(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code in (0, 1), done.output


def test_without_a_broker_only_the_page_cache_is_spared(tmp_path: Path, seen: list[tuple[Manners, Standing]]) -> None:
    logs, before = copy_of("kafka27-mixed", tmp_path), standing()
    segment = str(next(logs.glob("*/*.log")))
    verbs = (("verify", logs, *CLOCK), ("plan", logs, *CLOCK), ("stats", logs, *CLOCK), ("transactions", logs), ("offsets", logs))
    verbs += (("explain", logs, "--producer-id", "1", *CLOCK), ("rebuild", logs, "--dry-run", *CLOCK), ("dump", segment))
    for verb in verbs:
        run(*verb)
        assert seen, verb
        assert {each.leaves_page_cache for each, _ in seen} == {True}, verb
        assert {(each.bytes_per_second, each.stands_last) for each, _ in seen} == {(None, False)}, verb
        assert {place for _, place in seen} == {before}
        assert manners() == USUAL_MANNERS
        seen.clear()


def test_beside_a_broker(tmp_path: Path, seen: list[tuple[Manners, Standing]]) -> None:
    logs, before = copy_of("kafka27-mixed", tmp_path), standing()
    with live_broker(logs):
        run("verify", logs, *CLOCK)
    assert {(each.bytes_per_second, each.stands_last) for each, _ in seen} == {(RATE_BESIDE_BROKER_BYTES, True)}
    assert {(place.policy, place.nice) for _, place in seen} == {(os.SCHED_IDLE, 19)}
    assert manners() == USUAL_MANNERS
    if os.geteuid() == 0:
        assert standing() == before


def test_what_is_asked_for_counts(tmp_path: Path, seen: list[tuple[Manners, Standing]]) -> None:
    logs, before = copy_of("kafka27-mixed", tmp_path), standing()
    with live_broker(logs):
        run("verify", logs, *CLOCK, "--max-read-rate", 50_000_000, "--priority", "usual", "--fill-page-cache")
    assert {(each.bytes_per_second, each.stands_last, each.leaves_page_cache) for each, _ in seen} == {(50_000_000, False, False)}
    assert {place for _, place in seen} == {before}
    seen.clear()
    run("verify", logs, *CLOCK, "--max-read-rate", 50_000_000, "--jobs-per-disk", 3)
    assert {(each.bytes_per_second, each.readers_per_disk) for each, _ in seen} == {(50_000_000, 3)}


def test_the_note_tells_the_rate(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    with live_broker(logs):
        usual = in_json("verify", logs, *CLOCK)
        asked = in_json("verify", logs, *CLOCK, "--max-read-rate", 50_000_000)
    assert "read at 67108864 bytes a second at most" in usual.messages("live-broker")
    assert "read at 50000000 bytes a second at most" in asked.messages("live-broker")


def test_a_saved_plan_is_read_as_asked(tmp_path: Path) -> None:
    logs, plan = copy_of("kafka27-mixed", tmp_path), tmp_path / "plan.json"
    assert snaprebuild("plan", logs, "--save", plan, *CLOCK).exit_code == 0
    done = snaprebuild("rebuild", "--plan", plan, "--dry-run", "--max-read-rate", 50_000_000, "--priority", "idle")
    assert done.exit_code == 0


def test_nonsense(tmp_path: Path) -> None:
    for option, value in (("--max-read-rate", "0"), ("--max-read-rate", "64MiB"), ("--jobs-per-disk", "0"), ("--priority", "last")):
        done = snaprebuild("verify", tmp_path, option, value)
        assert done.exit_code == 2
        assert option in done.stderr
