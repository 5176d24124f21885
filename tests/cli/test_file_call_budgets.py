"""Calls of each verb to the file system for a log directory with one partition: exactly so many, so that no call returns unseen."""

from pathlib import Path

import pytest
from command import snaprebuild
from every_verb import AS_OF, ONE_JOB, healthy
from file_calls import PROPERTIES, Counts, counted_calls

from snaprebuild import ReplayOptions, ensure_snapshot
from snaprebuild.snapshots.rebuild import run as rebuild_run

AS_OF_MS = 1795266500000
CONFIGURED = ("--server-properties", f"{{}}/{PROPERTIES}")
RECEIPT = ("--receipt", "{}/receipt.jsonl")
STAGE = ("stage", *CONFIGURED, *AS_OF, "--to", "{}/staged", *ONE_JOB)

VERBS: dict[str, tuple[str, ...]] = {
    "scan": ("scan", *CONFIGURED),
    "plan": ("plan", *CONFIGURED, *AS_OF, "--out", "{}/out"),
    "verify": ("verify", *CONFIGURED, *AS_OF, *ONE_JOB),
    "rebuild --out": ("rebuild", *CONFIGURED, *AS_OF, "--out", "{}/out", *ONE_JOB, *RECEIPT),
    "rebuild in place": ("rebuild", *CONFIGURED, *AS_OF, *ONE_JOB, *RECEIPT),
    "before-start": ("before-start", *CONFIGURED, *ONE_JOB, *RECEIPT),
    "stage": STAGE,
    "install": ("install", "--plan", "{}/staged/plan.jsonl", *ONE_JOB, *RECEIPT),
}
BUDGETS = {
    "scan": Counts(listings=4, lock_probes=1, locks=0, properties=1, opens=14, stats=46),
    "plan": Counts(listings=6, lock_probes=1, locks=0, properties=1, opens=15, stats=62),
    "verify": Counts(listings=4, lock_probes=2, locks=0, properties=1, opens=22, stats=51),
    "rebuild --out": Counts(listings=6, lock_probes=1, locks=1, properties=1, opens=27, stats=147),
    "rebuild in place": Counts(listings=7, lock_probes=2, locks=2, properties=1, opens=38, stats=119),
    "before-start": Counts(listings=7, lock_probes=2, locks=2, properties=1, opens=40, stats=116),
    "stage": Counts(listings=7, lock_probes=1, locks=2, properties=1, opens=40, stats=206),
    "install": Counts(listings=9, lock_probes=1, locks=1, properties=1, opens=39, stats=159),
    "ensure_snapshot": Counts(listings=1, lock_probes=1, locks=0, properties=0, opens=11, stats=16),
}


def _filled(arguments: tuple[str, ...], root: Path) -> list[str]:
    return [each.replace("{}", str(root)) for each in arguments]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A log directory of a stopped broker with one partition that lacks a snapshot, and its configuration."""
    for name, data in healthy().items():
        if name.startswith("bare/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
    (tmp_path / "bare" / ".lock").touch()
    (tmp_path / PROPERTIES).write_text(f"broker.id=1\nlog.dirs={tmp_path}/bare\n")
    return tmp_path


@pytest.fixture
def one_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets one thread write: of two that need the same directory, each may ask whether it is there."""
    monkeypatch.setattr(rebuild_run, "WRITERS", 1)


@pytest.mark.usefixtures("one_writer")
@pytest.mark.parametrize("name", VERBS)
def test_verb(name: str, tree: Path) -> None:
    if name == "install":
        staged = snaprebuild(*_filled(STAGE, tree))
        assert staged.exit_code == 0, staged
    with counted_calls(tree) as calls:
        ran = snaprebuild(*_filled(VERBS[name], tree))
    assert ran.exit_code == (1 if name == "scan" else 0), ran
    assert calls.counts == BUDGETS[name], (calls.counts, calls)


def test_ensure_snapshot(tree: Path) -> None:
    with counted_calls(tree) as calls:
        ensured = ensure_snapshot(tree / "bare" / "payments-0", 56, options=ReplayOptions(as_of_ms=AS_OF_MS))
    assert ensured.path is None
    assert calls.counts == BUDGETS["ensure_snapshot"], (calls.counts, calls)
