"""Kafka's own ``KafkaRaftLog`` loads metadata logs and moves their start: as the policies say, and as the rules say where it cannot."""

import random
import shutil
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kafka_classpath import java_output
from log_dirs import batch, record
from metadata_dirs import BROKEN, BUNDLED, DIRECTORY, checkpoint_name

from snaprebuild.cluster.quorum.advise import model_of
from snaprebuild.cluster.quorum.facts import NodeFacts, read_node
from snaprebuild.cluster.quorum.log_start import MetadataLogModel, StartSettings, immediate, retention
from snaprebuild.cluster.quorum.rules import QuorumRule, judge_log
from snaprebuild.cluster.rule_result import RuleState

pytestmark = pytest.mark.kafka

CONTROL = 0x20
SEED = 14932
GENERATED = 130
NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Asked:
    """A directory, and what is done to it."""

    directory: Path
    words: tuple[object, ...]


def kafka_answers(asked: list[Asked]) -> list[list[str]]:
    """All in one process."""
    lines = ["\t".join(map(str, (each.directory, *each.words))) for each in asked]
    reported = java_output("LoadedMetadataLog", "MetadataRetention", lines=lines)
    answers = [line.split() for line in reported if line.startswith(("moved ", "stayed ", "refused "))]
    assert len(answers) == len(asked)
    return answers


# ------------------------------------------------------------------------------------------------------------ generated directories


def in_epoch(data: bytes, epoch: int) -> bytes:
    return data[:12] + struct.pack(">i", epoch) + data[16:]


def checkpoint_bytes(timestamp_ms: int, filler: int) -> bytes:
    """Header, some record, footer."""
    header = record(struct.pack(">hqb", 0, timestamp_ms, 0), key=struct.pack(">hh", 0, 3))
    footer = record(struct.pack(">hb", 0, 0), key=struct.pack(">hh", 0, 4))
    parts = (
        batch(0, attributes=CONTROL, records=[header]),
        batch(1, payload_bytes=filler),
        batch(2, attributes=CONTROL, records=[footer]),
    )
    return b"".join(parts)


def generated(rng: random.Random, to: Path) -> Path:
    """A log of one to six segments, and up to eight checkpoints, most between batches, some not where they should be."""
    directory = to / DIRECTORY
    directory.mkdir(parents=True)
    base = offset = rng.choice((0, 0, 0, rng.randrange(1, 500)))
    epoch, time_ms = rng.randrange(1, 4), NOW_MS - 10 * DAY_MS
    ends: list[tuple[int, int, int]] = []
    for _ in range(rng.randrange(1, 7)):
        first, data = offset, bytearray()
        for _ in range(rng.randrange(1, 12)):
            count = rng.randrange(1, 4)
            data += in_epoch(batch(offset, count=count, payload_bytes=rng.randrange(1, 900), timestamp=time_ms), epoch)
            offset += count
            ends.append((offset, epoch, time_ms))
            time_ms += rng.randrange(0, DAY_MS // 3)
            epoch += rng.random() < 0.1
        (directory / f"{first:020d}.log").write_bytes(data)
    wanted = rng.sample(ends, min(len(ends), rng.randrange(0, 9)))
    if base and rng.random() < 0.8:
        wanted.append((base, 1, NOW_MS - 11 * DAY_MS))
    if rng.random() < 0.15:
        wanted.append((offset + rng.randrange(1, 50), epoch + rng.randrange(0, 2), time_ms))
    if rng.random() < 0.15:
        wanted.append((0, 0, 0))
    if base and rng.random() < 0.3:
        wanted.append((rng.randrange(0, base), 1, NOW_MS - 12 * DAY_MS))
    if base and rng.random() < 0.4:
        wanted = [each for each in wanted if each[0] < base]
    for end, of_epoch, timestamp in wanted:
        (directory / checkpoint_name(end, of_epoch)).write_bytes(checkpoint_bytes(timestamp, rng.randrange(1, 3000)))
    return directory


def what_is_asked(rng: random.Random, node: NodeFacts) -> tuple[object, ...]:
    """A limit near the size of the log, or its age, or both; or a checkpoint to go to."""
    size = sum(each.size_bytes for each in node.segments) + sum(each.size_bytes for each in node.facts.checkpoints)
    if node.facts.checkpoints and rng.random() < 0.25:
        latest = node.facts.checkpoints[-1].id
        return "before", latest.offset, latest.epoch
    limit = rng.choice((-1, 0, size - 1, size, rng.randrange(0, size + 1), rng.randrange(0, size + 1)))
    age_ms = rng.choice((-1, 0, 7 * DAY_MS, rng.randrange(0, 14 * DAY_MS)))
    return "clean", limit, age_ms, NOW_MS


# ---------------------------------------------------------------------------------------------------------------------- comparison


def loaded(node: NodeFacts) -> MetadataLogModel:
    """The log when Kafka has loaded the directory (``KafkaRaftLog.createLog``).

    The start is that of the first segment, and a latest checkpoint beyond the log empties the log.
    """
    model = model_of(replace(node, facts=replace(node.facts, start_offset=node.facts.base)))
    latest = model.latest
    if latest is not None and node.facts.is_emptied:
        model.restart_at(latest)
    return model


def expected(node: NodeFacts, words: tuple[object, ...]) -> tuple[int, MetadataLogModel]:
    """The start as it is loaded, and the log as it is after the policy was applied."""
    model = loaded(node)
    before = model.start.offset
    if words[0] == "before":
        immediate(model)
    else:
        _, limit, age_ms, now_ms = words
        assert isinstance(limit, int)
        assert isinstance(age_ms, int)
        assert isinstance(now_ms, int)
        list(retention(model, now_ms, StartSettings(limit, age_ms)))
    return before, model


def is_covered(node: NodeFacts) -> bool:
    """Whether K1 holds."""
    return all(each.state is RuleState.HOLDS for each in judge_log(node.facts) if each.rule is QuorumRule.K1)


def assert_as_kafka(asked: Asked, node: NodeFacts, answer: list[str]) -> str:
    if not is_covered(node):
        assert answer == ["refused", "IllegalStateException"], asked
        return "refused"
    before, model = expected(node, asked.words)
    assert answer[0] != "refused", asked
    assert list(map(int, answer[1:])) == [before, model.start.offset, model.end_offset], asked
    left = sorted(path.name for path in asked.directory.iterdir())
    assert [int(name[:20]) for name in left if name.endswith(".log")] == [each.base_offset for each in model.segments], asked
    checkpoints = sorted(checkpoint_name(each.id.offset, each.id.epoch) for each in model.checkpoints)
    assert [name for name in left if name.endswith(".checkpoint")] == checkpoints, asked
    return answer[0]


def test_the_start_moves_as_in_kafka(tmp_path: Path) -> None:
    """Generated directories, the bundled ones, and those that the rules call broken: start, segments and checkpoints that are left."""
    rng = random.Random(SEED)
    directories = [generated(rng, tmp_path / f"made{number}") for number in range(GENERATED)]
    for name, log_dir in BUNDLED.items():
        for copy in range(3):
            directories.append(shutil.copytree(log_dir / DIRECTORY, tmp_path / f"{name}-{copy}" / DIRECTORY))
    # What K8 breaks Kafka's cleaner meets only where it reads that very file; of K3, K6, K7 and K11 the loader makes another log.
    for rule in ("K1", "K2", "K4", "K5", "K9", "K12"):
        directories += BROKEN[rule](tmp_path / rule)
    nodes = [read_node(str(each)) for each in directories]
    asked = [Asked(each, what_is_asked(rng, node)) for each, node in zip(directories, nodes, strict=True)]
    reported = [assert_as_kafka(*each) for each in zip(asked, nodes, kafka_answers(asked), strict=True)]
    for outcome in ("moved", "stayed", "refused"):
        assert reported.count(outcome) > 3, reported


def test_a_misnamed_checkpoint_keeps_a_node_from_starting(tmp_path: Path) -> None:
    (directory,) = BROKEN["K10"](tmp_path)
    ((outcome, error),) = kafka_answers([Asked(directory, ("clean", -1, -1, NOW_MS))])
    assert outcome == "refused"
    assert error in ("NumberFormatException", "StringIndexOutOfBoundsException")
