"""How verbs read: what the options say, what a live broker changes, and that all of it ends with the verb."""

import os
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command import COMMAND, Run, in_json, snaprebuild
from log_dirs import copy_of
from other_process import live_broker
from typer.testing import CliRunner

from snaprebuild.cli.main import app
from snaprebuild.storage.io_limits import policy
from snaprebuild.storage.io_limits.policy import (
    IDLE,
    NO_IO_LIMITS,
    RATE_WITH_BROKER_BYTES,
    WORKER_BYTES,
    IoLimits,
    SchedulingClass,
    current_limits,
    scheduling_class,
)
from snaprebuild.storage.local.segment_file import SegmentFile

CLOCK = ("--as-of", "2026-11-20", "--expiration-ms", "604800000")


@dataclass
class Observed:
    """How this process reads segments, each time that it reads, and the priorities that it asks for.

    Attributes:
        reads: the limits, and the last priority that was asked for; None before the first.
        asked: in order.
    """

    reads: list[tuple[IoLimits, SchedulingClass | None]] = field(default_factory=list)
    asked: list[SchedulingClass] = field(default_factory=list)


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Observed:
    """The priority of this process stays: not every user may raise it again. ``test_priority.py`` shows what the kernel does."""
    found = Observed()
    read_into = SegmentFile.read_into

    def recorded(segment: SegmentFile, position_bytes: int, buffer: memoryview) -> int:
        found.reads.append((segment._limits.io, found.asked[-1] if found.asked else None))
        return read_into(segment, position_bytes, buffer)

    monkeypatch.setattr(SegmentFile, "read_into", recorded)
    monkeypatch.setattr(policy, "set_priority", found.asked.append)
    return found


def run(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code in (0, 1), done.output


def test_without_a_broker_only_the_page_cache_is_spared(tmp_path: Path, observed: Observed) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    segment = str(next(logs.glob("*/*.log")))
    verbs = (
        ("verify", logs, *CLOCK),
        ("plan", logs, *CLOCK),
        ("inspect", "stats", logs, *CLOCK),
        ("inspect", "transactions", logs),
        ("follower", "offsets", logs),
    )
    verbs += (
        ("inspect", "explain", logs, "--producer-id", "1", *CLOCK),
        ("rebuild", logs, "--dry-run", *CLOCK),
        ("inspect", "dump", segment),
    )
    for verb in verbs:
        run(*verb)
        assert observed.reads, verb
        assert {each.leaves_page_cache for each, _ in observed.reads} == {True}, verb
        assert {(each.bytes_per_second, each.at_idle_priority) for each, _ in observed.reads} == {(None, False)}, verb
        assert not observed.asked, verb
        assert current_limits().io == NO_IO_LIMITS
        observed.reads.clear()


def test_next_to_a_broker(tmp_path: Path, observed: Observed) -> None:
    logs, before = copy_of("kafka27-mixed", tmp_path), scheduling_class()
    with live_broker(logs):
        run("verify", logs, *CLOCK)
    assert {(each.bytes_per_second, each.at_idle_priority) for each, _ in observed.reads} == {(RATE_WITH_BROKER_BYTES, True)}
    assert {priority for _, priority in observed.reads} == {IDLE}
    assert observed.asked == [IDLE, before], "what the process had is asked for at the end"
    assert current_limits().io == NO_IO_LIMITS


def test_what_is_asked_for_counts(tmp_path: Path, observed: Observed) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    with live_broker(logs):
        options = ("max_read_rate=50000000", "priority=usual", "fill_page_cache=true")
        run("verify", logs, *CLOCK, *(word for each in options for word in ("--set", each)))
    assert {(each.bytes_per_second, each.at_idle_priority, each.leaves_page_cache) for each, _ in observed.reads} == {
        (50_000_000, False, False)
    }
    assert not observed.asked
    observed.reads.clear()
    run("verify", logs, *CLOCK, "--set", "max_read_rate=50000000", "--set", "jobs_per_disk=3")
    assert {(each.bytes_per_second, each.readers_per_disk) for each, _ in observed.reads} == {(50_000_000, 3)}


def test_the_note_shows_the_rate(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    with live_broker(logs):
        usual = in_json("verify", logs, *CLOCK)
        asked = in_json("verify", logs, *CLOCK, "--set", "max_read_rate=50000000")
    assert "a live broker holds this log directory" in usual.messages("live-broker")
    assert "read at 67108864 bytes a second at most" in usual.messages("live-broker")
    assert "read at 50000000 bytes a second at most" in asked.messages("live-broker")


def test_a_saved_plan_is_read_as_asked(tmp_path: Path) -> None:
    logs, plan = copy_of("kafka27-mixed", tmp_path), tmp_path / "plan.json"
    assert snaprebuild("plan", logs, "--save", plan, *CLOCK).exit_code == 0
    done = snaprebuild("rebuild", "--plan", plan, "--dry-run", "--set", "max_read_rate=50000000", "--set", "priority=idle")
    assert done.exit_code == 0


# --- memory -----------------------------------------------------------------------------------------------------------------

MIB = 1 << 20


def processes_of(session: int) -> dict[int, tuple[int, str]]:
    """Anonymous memory in bytes of each process of a session, and its limit of data as the kernel shows it."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[3]) != session:
                continue
            status, limits = (Path(entry.path, name).read_text().splitlines() for name in ("status", "limits"))
            held = next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))
            found[int(entry.name)] = held, next(line.split()[3] for line in limits if line.startswith("Max data size"))
        except (OSError, StopIteration):  # it ends at this moment
            continue
    return found


@pytest.mark.full
def test_a_run_with_workers_stays_below_its_memory(tmp_path: Path) -> None:
    """Two workers have room; of the partitions one needs more than a worker may have: it is named, and the others are done."""
    from make_partition import Shape, make_partition

    logs, most = tmp_path / "logs", 4 * WORKER_BYTES
    for number in range(3):
        make_partition(logs / f"small-{number}", Shape(16 << 10, 24 * MIB, 8 * MIB, producers=200), seed=number)
    make_partition(logs / "large-0", Shape(100, 40 * MIB, 40 * MIB, producers=400_000))

    def rebuilt(name: str, *options: str) -> tuple[Run, int, int, dict[int, set[int]], dict[int, int]]:
        arguments = [
            "rebuild",
            str(logs),
            "--out",
            str(tmp_path / name),
            "--as-of",
            "2023-11-15",
            "--receipt",
            str(tmp_path / f"{name}.jsonl"),
        ]
        peak, limits, held = 0, defaultdict[int, set[int]](set), defaultdict[int, int](int)
        with (
            (tmp_path / f"{name}.out").open("w+") as out,
            subprocess.Popen(
                [*COMMAND, *arguments, *options, "--output", "json"], stdout=out, stderr=subprocess.DEVNULL, start_new_session=True
            ) as process,
        ):
            while process.poll() is None:
                now = processes_of(process.pid)
                peak = max(peak, sum(each for each, _ in now.values()))
                for pid, (each, limit) in now.items():
                    limits[pid] |= {int(limit)} if limit.isdigit() else set()
                    held[pid] = max(held[pid], each)
            out.seek(0)
            run = Run(process.returncode, out.read(), "")
        return run, process.pid, peak, limits, held

    run, command, peak, limits, held = rebuilt("bounded", "--jobs", "4", "--set", f"max_memory={most}")
    assert peak <= most
    assert all(limits[pid] for pid in held), "the kernel bounds each of them"
    # The process that starts workers has what the command had at its begin, and workers have their own share.
    workers = [pid for pid in held if pid != command and min(limits[pid]) < max(limits[command]) / 2]
    assert len(workers) == 2, "there is room for two of the four"
    assert all(held[pid] <= most // 4 for pid in workers)
    assert run.exit_code == 5
    assert run.messages("out-of-memory") == f"{logs / 'large-0'}: out of memory: max_memory leaves no more for it"
    assert run.codes["out-of-memory"] == 1
    assert set(run.actions("large-0").values()) == {"failed"}
    for number in range(3):
        assert set(run.actions(f"small-{number}").values()) == {"written"}
