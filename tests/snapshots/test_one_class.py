"""Each boundary has one class and one state, whichever command is asked of it."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from agreement import Moment, disagreements
from base_histories import EXPIRATION_MS, Base, History, Replays, bases_of, history_of
from budgets import TIER, each_seed, scaled
from command import in_json
from log_dirs import batch_positions, copy_of, cut, flip, make_log_dir
from manifests import FIXTURES
from replays import DAY_MS, FIXTURE_AS_OF_MS

from snaprebuild.inspect.explain import Question, explain_producer
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source

HISTORIES = scaled(24) if TIER != "quick" else 3
CLOCK = 1_790_000_000_000
"""The commands take no earlier year than 1974."""
RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None

Around = Callable[[Path, History, random.Random], None]
"""Makes the files of a broker around a partition, and may change the partition."""


def _plain(logs: Path, history: History, rng: random.Random) -> None:
    make_log_dir(logs, log_start_offset_checkpoint=f"0\n1\nt 0 {history.first_offset}\n", clean=rng.random() < 0.7)


def _remote(logs: Path, history: History, rng: random.Random) -> None:
    """Below the first segment the log continues in remote storage."""
    make_log_dir(logs, log_start_offset_checkpoint=f"0\n1\nt 0 {rng.choice((0, history.first_offset - 1))}\n")


def _compacted(logs: Path, history: History, rng: random.Random) -> None:
    """The cleaner works on the topic; perhaps a segment lost its first batch."""
    make_log_dir(logs, cleaner_offset_checkpoint=f"0\n1\nt 0 {history.first_offset}\n")
    segments = [each for each in history.broker.segments[history.deleted :] if len(each.batches) > 1]
    if segments and rng.random() < 0.7:
        segment = rng.choice(segments)
        data = b"".join(batch.data for batch in segment.batches[1:])
        (logs / "t-0" / f"{segment.base_offset:020d}.log").write_bytes(data)


def _damaged(logs: Path, history: History, rng: random.Random) -> None:
    """A byte differs, the end of a segment is gone, or a whole one; also of a log that begins in remote storage."""
    rng.choice((_plain, _remote))(logs, history, rng)
    paths = [path for path in sorted((logs / "t-0").glob("*.log")) if path.stat().st_size]
    path = rng.choice(paths)
    kind = rng.random()
    if kind < 0.5:
        flip(path, rng.randrange(path.stat().st_size), rng.choice((1, 0x80)))
    elif kind < 0.8 or path == paths[0]:
        cut(path, rng.randrange(path.stat().st_size))
    else:
        path.unlink()


def _repaired(logs: Path, history: History, rng: random.Random) -> None:
    """This program wrote some of the snapshots, and its receipt names them: they are no evidence."""
    start = rng.choice((history.first_offset, history.first_offset - 1))
    make_log_dir(logs, log_start_offset_checkpoint=f"0\n1\nt 0 {start}\n", recovery_points={"t-0": history.broker.end_offset})
    later = sorted((logs / "t-0").glob("*.snapshot"))[1:]
    for path in rng.sample(later, rng.randrange(bool(later), len(later) + 1)):
        path.unlink()
    for path in (logs / "t-0").glob("*.log"):
        path.with_suffix(".index").touch()  # without one the next start would remove what is written
    moment = ("--as-of", history.broker.clock, "--expiration-ms", EXPIRATION_MS)
    in_json("rebuild", logs, "--allow-unproven", *moment)


AROUND: dict[str, Around] = {
    "plain": _plain,
    "remote": _remote,
    "compacted": _compacted,
    "damaged": _damaged,
    "repaired": _repaired,
}


def _written(place: Path, history: History, base: Base, kind: str, rng: random.Random) -> Path:
    """A log directory with one partition."""
    replays = Replays(history, place / "logs")
    replays.write_base(base)
    if rng.random() < 0.15:
        (replays.path / f"{history.first_offset:020d}.snapshot").unlink()
    AROUND[kind](place / "logs", history, rng)
    return place / "logs"


def test_a_boundary_has_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    @each_seed(HISTORIES)
    def holds(seed: int) -> None:
        rng = random.Random(~seed)
        history = history_of(seed, CLOCK)
        bases = [base for base in bases_of(history, seed) if not base.ours]
        for kind in AROUND:
            base = rng.choice(bases)
            with tempfile.TemporaryDirectory(dir=RAM) as place:
                monkeypatch.setenv("XDG_STATE_HOME", f"{place}/state")
                logs = _written(Path(place), history, base, kind, rng)
                (partition,) = open_source([str(logs)]).partitions
                counts["ours"] += bool(partition.written_by_us)
                counts["in remote storage"] += partition.remote_from is not None
                moment = Moment(history.broker.clock, EXPIRATION_MS)
                assert disagreements(logs, Path(place), moment, counts) == [], (kind, base.kind)

    holds()
    print(dict(counts))  # noqa: T201
    for name in ("rebuild --out", "rebuild --dry-run", "plan", "ensure_snapshot", "explain", "last_stable", "in remote storage"):
        assert counts[name] > HISTORIES, name
    assert counts["stage"]
    assert counts["ours"]


SMALL = ("kafka27-moved-start/logs", "kafka27-compacted/logs", "follower-lost-state/node1", "follower-lost-state/node2")
LARGE = ("damaged/logs", "kafka27-killed/logs", "kafka27-mixed/logs", "kafka4-mixed/logs", "magicup/logs", "tiered-local/logs")


@pytest.mark.parametrize("days", [0, 30])
@pytest.mark.parametrize("fixture", [*SMALL, *(pytest.param(each, marks=pytest.mark.full) for each in LARGE)])
def test_bundled_directories(fixture: str, days: int, tmp_path: Path) -> None:
    logs = Path(shutil.copytree(FIXTURES / fixture, tmp_path / "logs"))
    counts: Counter[str] = Counter()
    assert disagreements(logs, tmp_path, Moment(FIXTURE_AS_OF_MS + days * DAY_MS, DAY_MS), counts) == []
    assert counts["last_stable"]


def test_an_unreadable_batch_is_no_torn_end(tmp_path: Path) -> None:
    """The last segment continues after a batch whose length is wrong, as its index shows: no command takes that for the log end."""
    logs = copy_of("kafka27-mixed", tmp_path)
    last = max((logs / "mixed-0").glob("*.log"))
    positions = batch_positions(last)
    flip(last, positions[len(positions) // 2] + 8, 0x40)
    counts: Counter[str] = Counter()
    assert disagreements(logs, tmp_path, Moment(FIXTURE_AS_OF_MS, DAY_MS), counts) == []
    assert counts["last_stable, damaged"]
    explained = explain_producer(
        open_source([str(logs / "mixed-0")]), Question(33), Run(clock=Moment(FIXTURE_AS_OF_MS, DAY_MS).clock, jobs=1)
    )
    assert [each.explained.offset for each in explained.partitions] == [int(last.stem)]
