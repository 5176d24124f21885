"""Logs that go on between ``stage`` and ``install``, and logs of which a part is older than producers live."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command import Run, in_json
from log_dirs import Entries, batch_positions, entries_in, snapshot_bytes, truth
from moved_in_time import moved_in_time
from msgspec.structs import replace

from snaprebuild.cluster.scan_storage import NextStartJudge
from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.snapshots import run as runs
from snaprebuild.snapshots.install import install
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.staging.staged_plan import load_staged_plan

AS_OF = ("--as-of", "2026-11-21T12:00:00Z")
AS_OF_MS = 1_795_262_400_000
DAY_MS = 86_400_000
TEN_DAYS_MS = 10 * DAY_MS
MIXED = sorted(set(truth("kafka27-mixed", "mixed-0")) - {7045, 7637, 8231})
"""Boundaries of ``mixed-0`` that Kafka 2.7 left without a snapshot."""


def staged(logs: Path, directory: Path, *options: object) -> Run:
    return in_json("stage", logs, "--to", directory, *AS_OF, *options)


def installed(directory: Path, receipt: Path, *options: object) -> Run:
    return in_json("install", "--plan", directory / "plan.jsonl", "--receipt", receipt, *options)


def installed_here(
    plan: Path, receipt: Path | None, *, deadline: float | None = None, jobs: int | None = None, **options: Any
) -> RebuildResult:
    """By the function itself, in a test that replaces a part of this process."""
    return install(
        load_staged_plan(str(plan)),
        judge_plans,
        NextStartJudge(),
        runs.Run(deadline=deadline, jobs=jobs),
        receipt=None if receipt is None else str(receipt),
        **options,
    )


def snapshots_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.snapshot")}


def running(logs: Path) -> Path:
    """Makes a directory look as if its broker ran: nothing shows that it stopped cleanly."""
    (logs / ".kafka_cleanshutdown").unlink()
    return logs


def earlier(logs: Path, partition: str, keep: int) -> Callable[[], None]:
    """Takes the newest segments away, as if they were not yet written. Returns what puts them back."""
    directory = logs / partition
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    later = [path for path in directory.iterdir() if path.name[:20].isdecimal() and int(path.name[:20]) > bases[keep]]
    aside = logs.parent / "later"
    aside.mkdir()
    for path in later:
        shutil.move(path, aside / path.name)
    topic, _, number = partition.rpartition("-")
    checkpoints = {logs / f"{name}-offset-checkpoint": "" for name in ("recovery-point", "replication")}
    for checkpoint in checkpoints:
        checkpoints[checkpoint] = text = checkpoint.read_text()
        line = next(line for line in text.splitlines() if line.startswith(f"{topic} {number} "))
        checkpoint.write_text(text.replace(line, f"{topic} {number} {bases[keep + 1]}"))

    def back() -> None:
        for path in aside.iterdir():
            shutil.move(path, directory / path.name)
        for checkpoint, text in checkpoints.items():
            checkpoint.write_text(text)

    return back


def bases_of(directory: Path) -> list[int]:
    """Base offsets of the segments."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def aged(logs: Path, partition: str, young: int) -> dict[int, Entries]:
    """Makes the segments below one of them ten days older, and its snapshots as a broker would have written them then.

    Args:
        logs: the log directory, named as its fixture.
        partition: of it.
        young: base offset of the first segment that keeps its age.

    Returns:
        The entries at each boundary, as Kafka's own classes gave them, with the age that their last batch has now.
    """
    directory, old = logs / partition, logs.parent / "old"
    moved_in_time(directory, old, -TEN_DAYS_MS)
    last_at = _last_batches(directory)
    for path in old.iterdir():
        if path.suffix in (".log", ".timeindex") and int(path.stem) < young:
            (directory / path.name).write_bytes(path.read_bytes())
    shutil.rmtree(old)
    expected = {
        boundary: frozenset(
            replace(entry, timestamp=entry.timestamp - TEN_DAYS_MS)
            if max(at for at in last_at[entry.producer_id] if at < boundary) < young
            else entry
            for entry in entries
        )
        for boundary, entries in truth(logs.name, partition).items()
    }
    for path in directory.glob("*.snapshot"):
        if int(path.stem) in expected:
            path.write_bytes(snapshot_bytes(expected[int(path.stem)]))
    return expected


def _last_batches(directory: Path) -> dict[int, list[int]]:
    """Base offsets of all batches of each producer, markers too."""
    found: dict[int, list[int]] = {}
    for path in directory.glob("*.log"):
        data = path.read_bytes()
        for at in batch_positions(path):
            (base,), (producer_id,) = struct.unpack_from(">q", data, at), struct.unpack_from(">q", data, at + 43)
            found.setdefault(producer_id, []).append(base)
    return found


def loaded(entries: Entries, as_of_ms: int = AS_OF_MS) -> Entries:
    """The entries that a broker keeps of a snapshot that it loads at a moment (``ProducerStateManager.isProducerExpired``): open
    transactions stay."""
    return frozenset(entry for entry in entries if entry.current_txn_first_offset >= 0 or as_of_ms - entry.timestamp < DAY_MS)


def entries_at(directory: Path, offset: int) -> Entries:
    """Entries of the snapshot at an offset."""
    return entries_in((directory / f"{offset:020d}.snapshot").read_bytes())
