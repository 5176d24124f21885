"""The server of workers is started before the command is loaded, only where it will be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snaprebuild.cli import early_server
from snaprebuild.cli.early_server import LOOKED_AT_MAX, start_early
from snaprebuild.snapshots.engine import worker_start

LARGE = worker_start.IN_PROCESS_BYTES_MAX + 1


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(worker_start, "start_server", lambda: found.append("started"))
    return found


def log_dir(root: Path, size_bytes: int) -> str:
    partition = root / "log" / "t-0"
    partition.mkdir(parents=True)
    for base in (0, 10):
        os.truncate(os.open(partition / f"{base:020d}.log", os.O_CREAT | os.O_WRONLY), size_bytes // 2 + 1)
    (partition / f"{0:020d}.index").write_bytes(bytes(100))
    return str(root / "log")


@pytest.mark.parametrize(
    ("words", "is_started"),
    [
        (("rebuild", "{}", "--out", "/nonexistent"), True),
        (("rebuild", "{}/t-0", "--dry-run"), True),
        (("--set", "rate=1", "inspect", "stats", "{}"), False),  # found when it is needed
        (("inspect", "stats", "{}"), True),
        (("verify", "/nonexistent", "{}"), True),
        (("verify", "{}", "--jobs", "1"), False),
        (("scan", "{}"), False),
        (("plan", "{}"), False),
        (("verify",), False),
        (("verify", "s3://bucket/prefix"), False),
        ((), False),
    ],
)
def test_who_starts_it(words: tuple[str, ...], is_started: bool, tmp_path: Path, starts: list[str]) -> None:
    root = log_dir(tmp_path, LARGE)
    start_early([word.format(root) for word in words])
    assert bool(starts) == is_started


def test_little_is_read_by_the_process_itself(tmp_path: Path, starts: list[str]) -> None:
    start_early(["verify", log_dir(tmp_path, LARGE - 10)])
    assert not starts


def test_links_are_not_followed_and_the_search_ends(tmp_path: Path, starts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(log_dir(tmp_path, LARGE))
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "t-0").symlink_to(root / "t-0")
    for base in (0, 10):
        (linked / f"{base:020d}.log").symlink_to(root / "t-0" / f"{base:020d}.log")
    start_early(["verify", str(linked)])
    assert not starts
    monkeypatch.setattr(early_server, "LOOKED_AT_MAX", 1)
    start_early(["verify", str(root)])
    assert not starts
    assert LOOKED_AT_MAX >= 1000
