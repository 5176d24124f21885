"""Records that ``tier metadata`` produces to a cluster, by a topic in memory: when it refuses to, and what it leaves there."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cli.test_next_command import next_words
from command import Run, in_json, snaprebuild
from overlapping_copies import History, LeftCopy, write_leader, written_copy
from remote_records import PARTITION, copy, finished
from tier_example import MS
from tiers import TOPIC_ID, write_tier

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentUpdate,
    TopicIdPartition,
    read_remote_log_record,
    write_remote_log_record,
)
from snaprebuild.errors import WriteFailedError
from snaprebuild.storage.remote.metadata_topic import ClusterTopic
from snaprebuild.tier.expiration import UNLIMITED, DeletionReason, ExpectedLeader, RetentionSettings, expired_copies
from snaprebuild.tier.remote_log import RemoteLog
from snaprebuild.tier.upload.announce import Announcer

METADATA = "__remote_log_metadata"
NO_LIMIT = {"remote.log.copy.disable": "true", "retention.ms": "-1", "retention.bytes": "-1"}


@dataclass
class Cluster:
    """One topic, and ``__remote_log_metadata`` of one partition; ``fails_at`` counts appends."""

    settings: dict[str, str | None] = field(default_factory=lambda: dict(NO_LIMIT))
    has_leaders: bool = True
    records: list[bytes] = field(default_factory=list)
    fails_at: int | None = None
    read: int = 0

    def topics(self, names: Sequence[str]) -> dict[str, ClusterTopic]:
        known = {METADATA: ClusterTopic(None, frozenset({0})), "t": ClusterTopic(TOPIC_ID, frozenset({0}), self.has_leaders)}
        return {name: known[name] for name in names if name in known}

    def settings_of(self, topic: str) -> dict[str, str | None]:
        assert topic == "t"
        return self.settings

    def place(self, partition: int) -> str:
        return f"{METADATA}-{partition}"

    def first_offset(self, partition: int) -> int:
        return partition

    def read_new(self, partition: int) -> Iterator[tuple[int, bytes | None]]:
        assert partition == 0
        while self.read < len(self.records):
            self.read += 1
            yield self.read - 1, self.records[self.read - 1]

    def append(self, partition: int, value: bytes) -> None:
        if self.fails_at == len(self.records):
            raise WriteFailedError("refused", path=self.place(partition))
        self.records.append(value)

    def log(self) -> RemoteLog:
        log = RemoteLog()
        for value in self.records:
            record = read_remote_log_record(value)
            assert isinstance(record, RemoteSegment | RemoteSegmentUpdate)
            log.take(record)
        return log


COPIES = [LeftCopy(first, first + 9, ((0, 0),), dict.fromkeys(range(first, first + 10), 0)) for first in (0, 10, 20)]
HISTORY = History(log=[0] * 35, epochs=[(0, 0)], copies=COPIES)


@pytest.fixture
def words(tmp_path: Path) -> tuple[object, ...]:
    store = write_tier(tmp_path / "remote", "t", 0, [written_copy(each) for each in COPIES])
    return (store, "--log-dir", write_leader(tmp_path / "leader", HISTORY, 0), "--produce-to", "localhost:1")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    @contextmanager
    def announcing(_to: str | None, _config: str | None, partitions: Iterable[TopicIdPartition]) -> Generator[Announcer]:
        made.read = 0
        yield Announcer.of(made, partitions)

    monkeypatch.setattr("snaprebuild.cli.runs.tier_metadata.announcing", announcing)
    return made


def refused(run: Run, what: str) -> bool:
    return (run.exit_code, what in run.stderr) == (3, True)


def test_records_are_produced_once_while_copying_is_off(cluster: Cluster, words: tuple[object, ...]) -> None:
    dry = in_json("tier metadata", *words, "--dry-run")
    assert (dry.exit_code, cluster.records, dry.document["expected_deletions"]) == (0, [], [])
    run = in_json("tier metadata", *words)
    assert (run.exit_code, run.document["produced_to"], len(cluster.records)) == (0, "localhost:1", 6)
    assert [cluster.log().lookup(0, offset).start_offset for offset in (0, 9, 10, 29)] == [0, 0, 10, 20]  # type: ignore[union-attr]
    again = in_json("tier metadata", *words)
    assert (again.exit_code, len(cluster.records)) == (0, 6)


def test_leaders_that_copy_are_refused(cluster: Cluster, words: tuple[object, ...]) -> None:
    cluster.settings["remote.log.copy.disable"] = "false"
    assert refused(in_json("tier metadata", *words), "set remote.log.copy.disable=true first")
    cluster.has_leaders = False
    assert in_json("tier metadata", *words).exit_code == 0


def test_an_interrupted_run_is_continued(cluster: Cluster, words: tuple[object, ...]) -> None:
    cluster.fails_at = 3
    assert in_json("tier metadata", *words).exit_code == 5
    cluster.fails_at = None
    assert (in_json("tier metadata", *words).exit_code, len(cluster.records)) == (0, 6)
    assert cluster.log().dropped == 0


def test_a_topic_with_other_copies_is_refused(cluster: Cluster, words: tuple[object, ...]) -> None:
    assert in_json("tier metadata", *words).exit_code == 0
    foreign = read_remote_log_record(cluster.records[0])
    assert isinstance(foreign, RemoteSegment)
    assert foreign.id is not None
    other = RemoteSegment(
        **{name: getattr(foreign, name) for name in foreign.__slots__}
        | {"id": type(foreign.id)(foreign.id.topic_id_partition, bytes(16)), "segment_id": bytes(16)}
    )
    cluster.records[:] = [write_remote_log_record(other)]
    assert refused(in_json("tier metadata", *words), "brokers have other copies of it")


def test_what_the_first_pass_deletes_is_typed(cluster: Cluster, words: tuple[object, ...]) -> None:
    cluster.settings["retention.ms"] = "1000"
    dry = in_json("tier metadata", *words, "--dry-run")
    assert [each["deletion_reason"] for each in dry.document["expected_deletions"]] == ["retention-ms"] * 3
    assert refused(in_json("tier metadata", *words), "the first pass of the leaders deletes 3 copies")
    assert cluster.records == []
    assert in_json("tier metadata", *words, "--deletes", 3).exit_code == 0


def test_a_dry_run_names_the_number_to_type_and_proposes_no_command_that_is_refused(
    cluster: Cluster, words: tuple[object, ...]
) -> None:
    """The operator types it after a look at the copies: no command to copy has it before that."""
    cluster.settings["retention.ms"] = "1000"
    for more in ((), ("--deletes", 2)):
        dry = snaprebuild("tier", "metadata", *words, *more, "--dry-run")
        assert "\nNext: look at the copies below, then give --deletes 3.\n" in dry.stdout
    cluster.settings["retention.ms"] = "-1"
    dry = snaprebuild("tier", "metadata", *words, "--deletes", 3, "--dry-run")
    assert "\nNext: give --deletes 0.\n" in dry.stdout
    cluster.settings["retention.ms"] = "1000"
    typed = next_words(snaprebuild("tier", "metadata", *words, "--deletes", 3, "--dry-run"))
    assert (typed[:2], snaprebuild(*typed).exit_code, len(cluster.records)) == (["tier", "metadata"], 0, 6)


def test_a_refused_partition_is_not_produced(cluster: Cluster, words: tuple[object, ...]) -> None:
    """The log start is unknown without the leader."""
    run = in_json("tier metadata", words[0], *words[3:])
    assert (run.exit_code, cluster.records, run.document["produced_to"]) == (3, [], None)


# --------------------------------------------------------------------------------------------------------------- the first pass


def remote_log(*copies: RemoteSegment) -> RemoteLog:
    return finished(*(replace(each, max_timestamp_ms=MS + each.end_offset, size_bytes=100) for each in copies))


def deleted(state: ExpectedLeader, settings: RetentionSettings, now_ms: int = MS) -> list[tuple[int, DeletionReason]]:
    log = remote_log(copy(1, 0, 9, (0, 0)), copy(2, 10, 19, (0, 10), (1, 15)), copy(3, 20, 29, (1, 20)), copy(4, 30, 39, (1, 30)))
    return [(each.segment.start_offset, each.reason) for each in expired_copies(log, state, settings, now_ms)]


STATE = ExpectedLeader(0, 50, (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 15)), 50)


def test_nothing_is_deleted_without_a_limit() -> None:
    assert deleted(STATE, UNLIMITED) == []


def test_retention_by_time_goes_from_the_oldest_on_until_one_stays() -> None:
    assert deleted(STATE, RetentionSettings(20, -1), MS + 20 + 19) == [
        (0, DeletionReason.RETENTION_MS),
        (10, DeletionReason.RETENTION_MS),
    ]


def test_retention_by_size_keeps_what_would_be_below_the_limit() -> None:
    """450 bytes with those on disk: 160 too many are one copy, and 200 are two."""
    assert deleted(STATE, RetentionSettings(-1, 290)) == [(0, DeletionReason.RETENTION_BYTES)]
    assert [start for start, _ in deleted(STATE, RetentionSettings(-1, 250))] == [0, 10]


def test_copies_below_the_log_start_and_below_the_leader_epochs_go() -> None:
    """DeleteRecords has this effect: the checkpoint of leader epochs begins with the log."""
    state = ExpectedLeader(25, 50, (LeaderEpochEntry(1, 25),), 50)
    assert deleted(state, UNLIMITED) == [(10, DeletionReason.LOG_START), (0, DeletionReason.LEADER_EPOCHS)]


class CountedEpochs(tuple[LeaderEpochEntry, ...]):
    """Leader epochs that count how many of them were looked at, one after the other."""

    looked_at = 0

    def __iter__(self) -> Iterator[LeaderEpochEntry]:
        for entry in super().__iter__():
            CountedEpochs.looked_at += 1
            yield entry


@pytest.mark.parametrize("retention", [RetentionSettings(0, -1), RetentionSettings(-1, 0), UNLIMITED])
@pytest.mark.parametrize("reaches_copies", [True, False])
def test_the_pass_looks_at_each_leader_epoch_and_each_copy_a_few_times(retention: RetentionSettings, reaches_copies: bool) -> None:
    """A copy with two leader epochs for each epoch of the log: each with each, they would be half a million."""
    count = 500
    log_epochs = CountedEpochs(LeaderEpochEntry(number, 10 * number) for number in range(count))
    copies = []
    for number in range(count - 1):
        segment_id = number.to_bytes(16)
        began = replace(copy(0, 10 * number, 10 * number + 10), id=RemoteSegmentId(PARTITION, segment_id), segment_id=segment_id)
        copies.append(replace(began, leader_epochs=CountedEpochs(log_epochs[number : number + 2])))
    log = remote_log(*copies)
    log_end = 10 * count if reaches_copies else 0
    leader = ExpectedLeader(0, log_end, log_epochs, 0)
    CountedEpochs.looked_at = 0
    expired = expired_copies(log, leader, retention, MS + 10 * count)
    assert len(expired) == (count - 1 if reaches_copies and retention is not UNLIMITED else 0)
    assert CountedEpochs.looked_at < 20 * count
