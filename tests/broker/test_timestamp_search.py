"""Searches by time against Kafka's own log on the same segments, of every bundled directory, and with indexes that are gone or short."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka_classpath import java_output
from ours import answer_numbers

from snaprebuild.followers import Profile
from snaprebuild.followers.list_offsets import Isolation
from snaprebuild.followers.offsets import OffsetsRequest, list_offsets
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SPECIAL = [-1, -2, -3, -4]
Answer = tuple[int, int, int]
CLEAN = ("as they are", "no time index after a clean stop")

PARTITIONS = sorted(
    {path.parent for pattern in ("*/logs/*/*.log", "*/node?/payments-0/*.log") for path in FIXTURES.glob(pattern)}
    - set(FIXTURES.glob("*/logs/__cluster_metadata-0"))
    - set(FIXTURES.glob("damaged/logs/*"))
)

pytestmark = pytest.mark.kafka


def theirs(asked: list[tuple[Path, int, int, bool, list[int]]]) -> list[dict[int, Answer]]:
    """Answers of ``UnifiedLog``, which changes the directories that it opens."""
    lines = []
    for directory, log_start, recovery_point, is_clean, timestamps in asked:
        lines += [f"{directory}\t{log_start}\t{recovery_point}\t{str(is_clean).lower()}", *map(str, timestamps)]
    answers = iter(java_output("TimestampSearch", lines=lines))
    found = []
    for *_, timestamps in asked:
        reported = [next(answers).split() for _ in timestamps]
        found.append({each: (int(a), int(b), int(c)) for each, (a, b, c) in zip(timestamps, reported, strict=True)})
    assert next(answers, None) is None
    return found


def answers_to_timestamps(partition_dir: Path, timestamps: Sequence[int]) -> dict[int, Answer]:
    """Our answers for a leader without remote storage that a follower asks; -1 each for none."""
    request = OffsetsRequest(tuple(timestamps), Isolation.REPLICA, 11, Profile.KAFKA, remote_storage=False)
    result, _ = list_offsets(open_source([str(partition_dir)]), None, request, Run(clock=Clock(0, 1)))
    (partition,) = result.partitions
    return answer_numbers(partition.answers)


def checkpointed(log_dir: Path, name: str, partition: str) -> int:
    """An offset of a checkpoint of the log directory; 0 where it has none, as a broker takes it."""
    path = log_dir / name
    topic, _, number = partition.rpartition("-")
    for line in path.read_text().splitlines()[2:] if path.exists() else ():
        if line.split()[:2] == [topic, number]:
            return int(line.split()[2])
    return 0


def timestamps_of(directory: Path, chosen: random.Random) -> list[int]:
    """Any, between the times of the files' records and beyond: taken from the time indexes and from headers of batches."""
    found = set()
    for path in directory.glob("*.timeindex"):
        data = path.read_bytes()
        found |= {int.from_bytes(data[at : at + 8], "big") for at in range(0, min(len(data), 12_000), 12)}
    for path in directory.glob("*.log"):
        data, at = path.read_bytes(), 0
        while at + 61 <= len(data):
            if data[at + 16] == 2:
                found |= {int.from_bytes(data[at + 27 : at + 35], "big"), int.from_bytes(data[at + 35 : at + 43], "big")}
            elif data[at + 16] == 1:
                found.add(int.from_bytes(data[at + 18 : at + 26], "big"))
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    times = sorted(each for each in found if 0 < each < 2**62) or [1_700_000_000_000]
    picked = {times[0], times[-1], *chosen.sample(times, min(len(times), 12))}
    between = {chosen.randint(times[0], times[-1]) for _ in range(4)}
    return [*SPECIAL, 0, *sorted(picked | {each + 1 for each in picked} | between)]


@pytest.mark.parametrize(
    "indexes", ["as they are", "no time index", "no time index after a clean stop", "no offset index", "short"]
)
def test_kafka_finds_the_same(indexes: str, tmp_path: Path) -> None:
    """An unclean stop where an index is gone or short, so that Kafka makes it anew; after a clean one it does not."""
    assert len(PARTITIONS) >= 20
    sources = PARTITIONS if indexes == "as they are" else PARTITIONS[::3]
    chosen = random.Random(f"{indexes}")
    asked, ours = [], []
    for number, source in enumerate(sources):
        log_dir = tmp_path / str(number)
        log_dir.mkdir()
        for path in source.parent.iterdir():
            if path.is_file():
                shutil.copy2(path, log_dir)
        shutil.copytree(source, log_dir / source.name)
        spoil(log_dir / source.name, indexes)
        is_clean = (log_dir / ".kafka_cleanshutdown").exists() and indexes in CLEAN
        if not is_clean:
            (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
            (log_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        timestamps = timestamps_of(source, chosen)
        ours.append(answers_to_timestamps(log_dir / source.name, timestamps))
        log_start = checkpointed(log_dir, "log-start-offset-checkpoint", source.name)
        asked.append((log_dir / source.name, log_start, 0, is_clean, timestamps))
    wrong = {}
    for source, mine, kafka in zip(sources, ours, theirs(asked), strict=True):
        different = {each: (mine[each], kafka[each]) for each in kafka if mine[each] != kafka[each]}
        if different:
            wrong[str(source.relative_to(FIXTURES))] = different
    assert not wrong, {name: list(each.items())[:5] for name, each in wrong.items()}
    assert sum(len(each) for each in ours) > 20 * len(sources)


def spoil(directory: Path, indexes: str) -> None:
    is_timeless = indexes.startswith("no time index")
    for path in sorted(directory.glob("*.timeindex" if is_timeless else "*index")):
        if is_timeless or (indexes == "no offset index" and path.suffix == ".index"):
            path.unlink()
        elif indexes == "short" and path.suffix in (".index", ".timeindex"):
            path.write_bytes(path.read_bytes()[: 12 if path.suffix == ".timeindex" else 8])
