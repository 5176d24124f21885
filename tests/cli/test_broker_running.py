"""``rebuild --broker-running``: next to a broker that runs, only what it will not come near, and checked again before it gets its name."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command import in_json, snaprebuild
from log_dirs import changes, copy_of, remove_snapshots, snapshot_name, snapshots_in, tree, truth
from other_process import LOCK_HOLDER, live_broker
from plans import make_plan

from formats.partition.producer_snapshot import ENTRY_DTYPE
from snaprebuild.errors import RefusedError
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.destination.rebuilt_snapshot import RebuiltSnapshot
from snaprebuild.snapshots.destination.snapshot_writers import NextToBrokerWriter, WriterSettings
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult
from snaprebuild.storage.local.broker_lock import broker_version
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store_path import StorePath

AS_OF = ("--as-of", "2026-11-21T12:00:00Z")
TRUTH = truth("kafka27-mixed", "mixed-0")
CLOSED = sorted(set(TRUTH) - {7637, 8231})


def at_work(to: Path) -> Path:
    """A log directory as while its broker runs, without any snapshot in ``mixed-0``."""
    logs = copy_of("kafka27-mixed", to)
    (logs / ".kafka_cleanshutdown").unlink()
    remove_snapshots(logs / "mixed-0")
    return logs


def set_checkpoint(logs: Path, name: str, offset: int) -> None:
    path = logs / f"{name}-offset-checkpoint"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(f"mixed 0 {offset}" if line.startswith("mixed 0 ") else line for line in lines) + "\n")


@contextlib.contextmanager
def broker_of(logs: Path, archive: str) -> Iterator[None]:
    """Holds the lock, with an archive in its class path."""
    command = [
        sys.executable,
        "-c",
        LOCK_HOLDER,
        str(logs / ".lock"),
        "-cp",
        f"/opt/kafka/libs/scala.jar:/opt/kafka/libs/{archive}",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.communicate("\n")


def test_rolled_segments_alone(tmp_path: Path) -> None:
    logs = at_work(tmp_path)
    before = tree(logs)
    with live_broker(logs):
        run = in_json("rebuild", logs, "--broker-running", "--topic", "mixed", *AS_OF, "--receipt", tmp_path / "receipt.jsonl")
    assert (run.exit_code, run.totals) == (0, {"written": len(CLOSED)}), run.stderr
    assert {offset: TRUTH[offset] for offset in CLOSED} == snapshots_in(logs / "mixed-0"), "neither the active base nor the log end"
    assert "is not known" in run.messages("while-broker-runs")
    appeared, vanished, changed = changes(before, tree(logs))
    assert appeared - {".lock"} == {f"mixed-0/{snapshot_name(offset)}" for offset in CLOSED}
    assert (vanished, {name for name in changed if not (logs / name).is_dir()}) == (set(), set())
    undone = in_json("undo", tmp_path / "receipt.jsonl")
    assert undone.totals == {"removed": len(CLOSED)}


def test_a_reader_of_the_table_sees_when_it_counts_and_what_an_old_broker_does(tmp_path: Path) -> None:
    logs = at_work(tmp_path)
    with live_broker(logs):
        unknown = snaprebuild("rebuild", logs, "--broker-running", *AS_OF, "--receipt", tmp_path / "one.jsonl")
    assert "2.7 or older deletes the snapshots again within a minute" in unknown.text
    assert "uses the written snapshots after its next start" in unknown.text
    assert in_json("undo", tmp_path / "one.jsonl").exit_code == 0
    with broker_of(logs, "kafka_2.13-3.9.2.jar"):
        known = snaprebuild("rebuild", logs, "--broker-running", *AS_OF, "--receipt", tmp_path / "two.jsonl")
        refused = snaprebuild("undo", tmp_path / "two.jsonl")
    assert "Kafka 3.9 runs here; it uses the written snapshots after its next start." in known.text
    assert (refused.exit_code, "But for what was left alone" in refused.stdout) == (3, False), "nothing was removed"


@pytest.mark.parametrize("checkpoint", ["recovery-point", "replication"])
def test_below_what_is_flushed_and_committed(checkpoint: str, tmp_path: Path) -> None:
    logs = at_work(tmp_path)
    set_checkpoint(logs, checkpoint, 3000)
    with live_broker(logs):
        run = in_json("rebuild", logs, "--broker-running", "--topic", "mixed", *AS_OF, "--receipt", tmp_path / "receipt.jsonl")
    assert set(snapshots_in(logs / "mixed-0")) == {offset for offset in CLOSED if offset <= 3000}, run.stderr


def test_where_it_is_refused(tmp_path: Path) -> None:
    logs = at_work(tmp_path)
    before = tree(logs)
    none = snaprebuild("rebuild", logs, "--broker-running")
    assert (none.exit_code, "no broker runs here" in none.stderr) == (3, True)
    with broker_of(logs, "kafka_2.13-2.7.2.jar"):
        old = snaprebuild("rebuild", logs, "--broker-running")
    assert (old.exit_code, "Kafka 2.7 runs here" in old.stderr) == (3, True)
    assert changes(before, tree(logs))[0] <= {".lock"}
    with broker_of(logs, "kafka_2.13-3.9.2.jar"):
        new = in_json("rebuild", logs, "--broker-running", "--topic", "mixed", *AS_OF, "--dry-run")
    assert (new.exit_code, "Kafka 3.9 runs here" in new.messages("while-broker-runs")) == (0, True)
    for options in (("--out", tmp_path / "out"), ("--set-aside",), ("--boundaries", "all")):
        assert snaprebuild("rebuild", logs, "--broker-running", *options).exit_code == 2


@pytest.mark.parametrize("what", ["touched", "cut", "renamed", "the next one"])
def test_it_is_looked_at_again_before_it_gets_its_name(what: str, tmp_path: Path) -> None:
    logs = at_work(tmp_path)
    with live_broker(logs):
        request = RebuildRequest((str(logs),), topics=("mixed",), as_of_ms=1_795_262_400_000, broker_running=True).checked()
        (plan,) = make_plan(request).partitions
        offset = plan.boundaries[3].offset
        bases = [segment.base_offset for segment in plan.source.directory.segments]
        segment = logs / "mixed-0" / f"{max(base for base in bases if base < offset):020d}.log"
        if what == "touched":
            os.utime(segment, ns=(0, 1))
        elif what == "cut":
            os.truncate(segment, segment.stat().st_size - 1)
        elif what == "renamed":
            segment.rename(segment.with_suffix(".log.deleted"))
        else:
            (logs / "mixed-0" / f"{min(base for base in bases if base >= offset):020d}.log").unlink()
        settings = WriterSettings(clock=Clock(0, DEFAULT_EXPIRATION_MS), report=None, lock=None, dry_run=False)
        writer = NextToBrokerWriter(PartitionResult(plan), request, settings)
        entries, judged = np.empty(0, ENTRY_DTYPE), Judgement(SnapshotClass.EXACT, ())
        with pytest.raises(RefusedError, match="the log changed during the run"):
            writer.write(RebuiltSnapshot(plan.boundaries[3], StorePath(LOCAL, plan.target), entries, judged, None))
        assert not [name for name in os.listdir(logs / "mixed-0") if ".snapshot" in name], "neither the name nor a temporary one"
        fine = RebuiltSnapshot(plan.boundaries[8], StorePath(LOCAL, plan.target), entries, judged, None)
        assert writer.write(fine).action == "written"


def test_what_a_process_shows_of_its_release(tmp_path: Path) -> None:
    for number, (arguments, descriptors, expected) in enumerate(
        [
            (["java", "-cp", "/k/kafka_2.12-2.7.0.jar:/k/kafka-clients-2.7.0.jar", "kafka.Kafka"], [], (2, 7)),
            (["java", "kafka.Kafka"], ["/k/libs/kafka_2.13-4.3.1.jar", "/plugin/kafka-clients-3.6.0.jar"], (4, 3)),
            (["java", "-cp", "/k/kafka-clients-2.6.0.jar"], [], None),
            (["java", "kafka_2.13-x.jar"], [], None),
        ]
    ):
        process = tmp_path / str(number)
        (process / "fd").mkdir(parents=True)
        (process / "cmdline").write_bytes(b"\0".join(each.encode() for each in arguments) + b"\0")
        for fd, path in enumerate(descriptors):
            (process / "fd" / str(fd)).symlink_to(path)
        assert broker_version(number, tmp_path) == expected
    assert broker_version(99, tmp_path) is None
