#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Measures the downtime that `install` adds to a broker, phase by phase, for any number of partitions and log directories.

Segments are one batch each: an install reads none of them, so that their size does not matter. Staged files are measured twice: as one run
of `stage` leaves them, when each is read; and after a second run, which has checked them, so that none is read. The caches are
warm; `--cold` (root only) drops those of the whole machine before each run.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from log_dirs import batch, make_log_dir, snapshot_bytes
from msgspec.structs import replace

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.plan.plan_model import RebuildRequest
from snaprebuild.snapshots.staging.staged_plan import (
    StagedEvidence,
    StagedPartition,
    StagedPlan,
    StagedSegment,
    StagedSnapshot,
    save_staged_plan,
)
from snaprebuild.storage.store import FileIdentity

ROOT = Path(__file__).resolve().parents[2]

PHASES = ("load", "check", "judge", "announce", "link", "sync", "replay")
PROMISED_SECONDS = 30.0
PROMISED_BOUNDARIES = 200_000
TOPICS = 40
CLOCK = Clock(2_000, 86_400_000)


def main() -> int:
    """Makes the directories and measures; exit code 1 where the promise is not kept at its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=4000, help="default: 4000")
    parser.add_argument("--boundaries", type=int, default=50, help="of each partition; default: 50")
    parser.add_argument("--runs", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--directory",
        type=Path,
        action="append",
        help="where a log directory and its staged files are made; repeatable, one for each disk; default: a temporary one",
    )
    parser.add_argument("--cold", action="store_true", help="drop the caches of the machine before each run")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        parents = options.directory or [None]
        roots = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-install-", dir=each))) for each in parents]
        root = roots[0]
        began = time.perf_counter()
        plan = make(roots, options.partitions, options.boundaries)
        os.sync()
        count = options.partitions * options.boundaries
        systems = len({os.stat(each).st_dev for each in roots})
        print(
            f"{options.partitions} partitions x {options.boundaries} boundaries = {count} in {len(roots)} log directories on {systems} "
            f"file systems, made in {time.perf_counter() - began:.0f} s"
        )
        print(f"| bytes | run | whole command s | {' | '.join(PHASES)} |\n|---|---|---|{'---|' * len(PHASES)}")
        runs = []
        for number in range(2 * options.runs):
            is_checked = number % 2 == 1
            save_staged_plan(replace(plan, partitions=tuple(map(checked, plan.partitions))) if is_checked else plan)
            if options.cold:
                os.sync()
                Path("/proc/sys/vm/drop_caches").write_text("3")
            seconds, phases = measure(root, plan.path, count, number)
            if not is_checked:
                runs.append((seconds, phases))
            columns = " | ".join(f"{phases.get(each, 0):.2f}" for each in PHASES)
            print(f"| {'checked' if is_checked else 'read'} | {number // 2 + 1} | {seconds:.2f} | {columns} |", flush=True)
            for each in roots:
                take_back(each)
        least = min(seconds for seconds, _ in runs)
        by_phase = " | ".join(f"{min(phases.get(each, 0) for _, phases in runs):.2f}" for each in PHASES)
        print(f"| read | least | {least:.2f} | {by_phase} |")
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{least / count * 1e6:.0f} us a boundary; memory {memory:.0f} MiB; {'cold' if options.cold else 'warm'}")
    promised = PROMISED_SECONDS * max(count / PROMISED_BOUNDARIES, 1)
    if least > promised:
        print(f"MISSED: {promised:.0f} s")
    return 1 if least > promised else 0


def make(roots: list[Path], partitions: int, boundaries: int) -> StagedPlan:
    """Segments of a stopped broker, partitions in turn on each of its disks, and what was staged for them."""
    names = [f"topic{number % TOPICS}-{number // TOPICS}" for number in range(partitions)]
    for number, root in enumerate(roots):
        make_log_dir(root / "logs", recovery_points=dict.fromkeys(names[number :: len(roots)], boundaries + 1))
    segments = [batch(base, producer_id=7, sequence=base) for base in range(boundaries + 1)]
    entry = ProducerEntry(7, 0, 0, 0, 0, 1_000, -1, -1)
    data = [snapshot_bytes([entry]) for _ in range(boundaries)]
    sha256 = hashlib.sha256(data[0]).hexdigest()
    log_dirs, stages = (tuple(str(root / name) for root in roots) for name in ("logs", "staged"))
    request = RebuildRequest(log_dirs, stage=stages)
    staged = []
    for number, name in enumerate(names):
        root = roots[number % len(roots)]
        directory = root / "logs" / name
        target = root / "staged" / f"{name}.staged"
        directory.mkdir(parents=True)
        target.mkdir(parents=True)
        identities = []
        for base, content in enumerate(segments):
            for ending, what in ((".log", content), (".index", b""), (".timeindex", b"")):
                path = directory / f"{base:020d}{ending}"
                identity = written(path, what)
                if ending == ".log":
                    identities.append(StagedSegment.of_segment(base, identity, path.stat().st_ctime_ns))
        written(directory / "leader-epoch-checkpoint", b"0\n1\n0 0\n")
        written(directory / f"{boundaries + 1:020d}.snapshot", data[0])
        snapshots = []
        for offset, content in enumerate(data, start=1):
            snapshot = written(target / f"{offset:020d}.snapshot", content)
            snapshots.append(
                StagedSnapshot(
                    offset=offset,
                    sha256=sha256,
                    size_bytes=snapshot.size_bytes,
                    modified_ns=snapshot.modified_ns,
                    inode=snapshot.inode,
                    snapshot_class=SnapshotClass.EXACT,
                    entries=1,
                    is_due=True,
                )
            )
        partition = StagedPartition(
            path=str(directory),
            topic_partition=name,
            topic_id=None,
            target=str(target),
            log_start_offset=0,
            first_offset=0,
            segments=tuple(identities),
            snapshots=tuple(snapshots),
            given_up=(),
            reasons=("made",),
            request=request,
            evidence=StagedEvidence.of(request, CLOCK),
        )
        staged.append(partition)
    plan = StagedPlan(f"{stages[0]}/plan.jsonl", request, CLOCK, 2_000, log_dirs, tuple(staged), ())
    save_staged_plan(plan)
    return plan


def checked(partition: StagedPartition) -> StagedPartition:
    """Brings a staged directory into the state that a second run of `stage` leaves."""
    names = (f"{partition.target}/{each.offset:020d}.snapshot" for each in partition.snapshots)
    both = zip(partition.snapshots, names, strict=True)
    snapshots = (msgspec.structs.replace(one, checked_ctime_ns=os.lstat(name).st_ctime_ns) for one, name in both)
    return msgspec.structs.replace(partition, snapshots=tuple(snapshots))


def written(path: Path, data: bytes) -> FileIdentity:
    """A file, and what it is."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(fd, data)
        return FileIdentity.of(os.fstat(fd))
    finally:
        os.close(fd)


def measure(root: Path, plan: str, count: int, number: int) -> tuple[float, dict[str, float]]:
    """Seconds of the whole command, its start included, and of each phase."""
    arguments = ["install", "--plan", plan, "--receipt", str(root / f"receipt-{number}.jsonl")]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "snaprebuild", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())  # long lines are wrapped
    assert f"{count} snapshots installed in" in text, done.stdout
    phases = re.findall(rf"\b({'|'.join(PHASES)}) (\d+\.\d+) s", text)
    return seconds, {name: float(duration) for name, duration in phases}


def take_back(root: Path) -> None:
    """Brings a directory into the state that it had before the run."""
    for directory in os.scandir(root / "logs"):
        if directory.is_dir():
            last_snapshot = max(name for name in os.listdir(directory.path) if name.endswith(".snapshot"))
            for name in os.listdir(directory.path):
                if name.endswith(".snapshot") and name != last_snapshot:
                    os.unlink(os.path.join(directory.path, name))


if __name__ == "__main__":
    sys.exit(main())
