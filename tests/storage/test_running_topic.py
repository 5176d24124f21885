"""Records of a running cluster: the fold is that of the log directories, up to where the topic ended when the run began.

Next to a broker: ``tests/broker/test_records_of_a_cluster.py``.
"""

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from manifests import FIXTURES

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import METADATA_TOPIC, RemoteSegment, read_remote_log_record
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Severity
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.remote.metadata_topic import ClusterTopic
from snaprebuild.storage.store import USUAL_S3
from snaprebuild.tier import running_topic
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.remote_store import read_remote_logs
from snaprebuild.tier.running_topic import RunningTopic, read_topic

LOGS = FIXTURES / "tiered-local" / "logs"
Record = tuple[int, bytes | None, bytes | None]


@dataclass
class PlayedTopic:
    """The topic with the records of log directories. More records arrive while it is read.

    Attributes:
        records: by partition.
        late: records that come after the run has begun, in the first partition.
        cut: first offset of the first partition.
    """

    records: dict[int, list[Record]]
    late: list[Record] = field(default_factory=list)
    cut: int = 0
    name: str = METADATA_TOPIC
    creates: bool = False
    id: str | None = None

    def may_create_topic(self) -> bool:
        return self.creates

    def cluster_id(self) -> str | None:
        return self.id

    def close(self) -> None:
        """Nothing is connected."""

    def topics(self, names: Sequence[str]) -> dict[str, ClusterTopic]:
        return {each: ClusterTopic(None, frozenset(self.records)) for each in names if each == self.name}

    def place(self, partition: int) -> str:
        return f"cluster: {METADATA_TOPIC}-{partition}"

    def bounds(self, partition: int) -> tuple[int, int]:
        records = self.records[partition]
        return (self.cut if partition == min(self.records) else 0), (records[-1][0] + 1 if records else 0)

    def read_up_to(self, partition: int, end: int) -> Iterator[Record]:
        more = self.late if partition == min(self.records) else []
        first, _ = self.bounds(partition)
        return (each for each in [*self.records[partition], *more] if first <= each[0] < end)


def recorded() -> dict[int, list[Record]]:
    """The records in the log directories of the fixture."""
    directories = [each for log_dir in find_partitions([str(LOGS)], USUAL_S3).log_dirs for each in log_dir.partitions]
    return {
        each.name.partition: [(record.offset, record.key, record.value) for record in log_records(each)]
        for each in directories
        if each.name.topic == METADATA_TOPIC
    }


def same(logs: RemoteLogs) -> object:
    """A fold without the cluster, which has no name here, and without the number of partitions, which a cluster shows."""
    return dataclasses.replace(logs, cluster_id=None, _count=None)


def test_the_fold_is_that_of_the_log_directories() -> None:
    records = recorded()
    assert sum(map(len, records.values())) > 20
    expected, findings = read_remote_logs([str(LOGS)], USUAL_S3)
    assert not findings
    found = read_topic(PlayedTopic(records), "cluster:9092")
    assert same(found.logs) == same(expected)
    assert found.findings == []
    assert found.ends == {number: len(each) for number, each in records.items()}


def test_records_that_come_later_are_not_read() -> None:
    records = recorded()
    number = max(records, key=lambda each: len(records[each]))
    whole = records[number]
    topic = PlayedTopic({number: whole[:-3]}, late=whole[-3:])
    found = read_topic(topic, "cluster:9092")
    assert same(found.logs) == same(read_topic(PlayedTopic({number: whole[:-3]}), "cluster:9092").logs)
    assert same(found.logs) != same(read_topic(PlayedTopic({number: whole}), "cluster:9092").logs)
    note = found.note("cluster:9092")
    assert (note.code, note.severity) == ("metadata-topic-read", Severity.NOTE)
    assert note.message.endswith(f": {number}: {len(whole) - 3}")


def test_a_topic_that_was_cut_verifies_nothing() -> None:
    records = recorded()
    found = read_topic(PlayedTopic(records, cut=1), "cluster:9092")
    assert [(each.code, each.severity) for each in found.findings] == [("metadata-topic-cut", Severity.NOTE)]


def cut_directories(tmp_path: Path, number: int, cut: int) -> Path:
    """The log directories of the fixture with another log start offset of a partition of the topic."""
    logs = Path(shutil.copytree(LOGS, tmp_path / "logs"))
    (checkpoint,) = logs.rglob("log-start-offset-checkpoint")
    version, _, *lines = checkpoint.read_text().splitlines()
    others = [each for each in lines if not each.startswith(f"{METADATA_TOPIC} {number} ")]
    lines = [*others, f"{METADATA_TOPIC} {number} {cut}"]
    checkpoint.write_text("\n".join([version, str(len(lines)), *lines, ""]))
    return logs


@pytest.mark.parametrize("verb", ["inventory", "audit", "metadata"])
def test_copies_whose_records_are_gone_are_a_finding(verb: str, played: PlayedTopic, tmp_path: Path) -> None:
    """Brokers that start do not find them. Without such copies a cut is a note: retention deleted what the records were about."""
    (number,) = [each for each, records in played.records.items() if records]
    complete = {each.name[21:43] for each in COPIES[0].rglob("*.log")}
    starts = []
    for offset, _, value in played.records[number]:
        assert value is not None
        record = read_remote_log_record(value, file="a record")
        if isinstance(record, RemoteSegment) and uuid_to_text(record.segment_id) in complete:
            starts.append(offset)
    assert starts[0] > 0, "records of copies that were never written are below"
    for cut, gone in ((starts[0], 0), (starts[2] + 1, 3)):
        played.cut = cut
        logs = cut_directories(tmp_path / str(cut), number, cut)
        store = (COPIES[0], *(COPIES[1:] if verb == "metadata" else ()), *(("--jobs", 1) if verb == "audit" else ()))
        for words in (("--metadata-log", logs), ("--bootstrap-server", "cluster:9092")):
            run = in_json(f"tier {verb}", *store, *words)
            assert run.codes["metadata-topic-cut"] == 1
            assert run.codes.get("tier-record-gone", 0) == bool(gone)
            assert gone == 0 or f"{gone} copies have no record" in run.messages("tier-record-gone")
            assert gone == 0 or run.exit_code == 1


def test_directories_show_no_record_below_the_log_start_offset(tmp_path: Path) -> None:
    """``DeleteRecords`` moves it within a segment, and brokers do not read what is below."""
    records = recorded()
    number = min(records)
    cut = len(records[number]) // 2
    assert 0 < cut < len(records[number])
    logs = cut_directories(tmp_path, number, cut)
    fold, findings = read_remote_logs([str(logs)], USUAL_S3)
    running = read_topic(PlayedTopic(records, cut=cut), "cluster:9092")
    assert same(fold) == same(running.logs)
    assert same(fold) != same(read_topic(PlayedTopic(records), "cluster:9092").logs)
    assert [(each.code, each.message) for each in findings] == [(each.code, each.message) for each in running.findings]
    assert [each.code for each in findings] == ["metadata-topic-cut"]


def test_a_record_that_cannot_be_read_ends_its_partition() -> None:
    records = recorded()
    number = max(records, key=lambda each: len(records[each]))
    broken = [*records[number][:2], (2, None, b"\xff\xff"), *records[number][3:]]
    found = read_topic(PlayedTopic({number: broken}), "cluster:9092")
    (finding,) = found.findings
    assert finding.severity >= Severity.REFUSED
    assert finding.is_unread
    assert "offset 2" in finding.message


def test_without_the_topic() -> None:
    with pytest.raises(RefusedError) as error:
        read_topic(PlayedTopic({0: []}, name="another"), "cluster:9092")
    assert error.value.path == f"cluster:9092: {METADATA_TOPIC}"


def test_no_topic_is_created() -> None:
    """The library looks for the coordinator of a group, and brokers create the topic of groups for it."""
    with pytest.raises(RefusedError, match="__consumer_offsets"):
        read_topic(PlayedTopic(recorded(), creates=True), "cluster:9092")


def test_no_setting_is_shown() -> None:
    assert "secret" not in repr(RunningTopic("cluster:9092", {"sasl.password": "secret"}))


@pytest.mark.parametrize("count", [3, 60])
def test_the_cluster_shows_how_many_partitions_the_topic_has(count: int) -> None:
    """Not their greatest number, nor Kafka's default."""
    found = read_topic(PlayedTopic({number: [] for number in range(count)}), "cluster:9092")
    assert found.logs.metadata_partitions() == count


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedTopic:
    """A running cluster that has the records of the fixture."""
    topic = PlayedTopic(recorded(), id="played")
    monkeypatch.setattr(running_topic, "MetadataTopic", lambda *_words, **_names: topic)
    return topic


COPIES = (FIXTURES / "tiered-local" / "remote", "--log-dir", LOGS)


def test_tier_metadata_compares_with_the_running_cluster(played: PlayedTopic, tmp_path: Path) -> None:
    written = [tmp_path / "running.jsonl", tmp_path / "stopped.jsonl"]
    running = in_json("tier metadata", *COPIES, "--bootstrap-server", "cluster:9092", "--records-file", written[0])
    stopped = in_json("tier metadata", *COPIES, "--metadata-log", LOGS, "--records-file", written[1])
    assert running.document["verified"] is stopped.document["verified"] is True
    assert running.document["partitions"] == stopped.document["partitions"]
    assert running.document["totals"] == stopped.document["totals"]
    assert running.exit_code == stopped.exit_code == 1
    assert dict(running.codes) == {**stopped.codes, "metadata-topic-read": 1}
    assert written[0].read_bytes() == written[1].read_bytes() != b""


def test_records_that_do_not_fit_are_counted_for_the_running_cluster(played: PlayedTopic) -> None:
    number = max(played.records, key=lambda each: len(played.records[each]))
    records = played.records[number]
    *_, (_, _, announced), (last_offset, _, _) = records  # the last copy was announced, and then finished
    played.records[number] = [*records, (last_offset + 1, None, announced)]
    run = in_json("tier metadata", *COPIES, "--bootstrap-server", "cluster:9092")
    (finding,) = [each for each in run.document["findings"] if each["code"] == "metadata-dropped"]
    assert finding["path"] == "cluster:9092"


def cluster_of(fixture: Path) -> str:
    """The id in a broker's ``meta.properties``."""
    lines = (fixture / "node1" / "meta.properties").read_text().splitlines()
    return next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))


@pytest.mark.parametrize("verb", ["inventory", "metadata"])
def test_a_running_cluster_that_is_another_than_that_of_the_metadata_log(verb: str, played: PlayedTopic) -> None:
    lost = FIXTURES / "follower-lost-state"
    run = snaprebuild("tier", verb, lost / "remote", "--bootstrap-server", "cluster:9092", "--metadata", lost / "node1")
    assert run.exit_code == 2
    assert (
        f"--metadata and --bootstrap-server are of different clusters: expected cluster {cluster_of(lost)}, found played"
        in run.stderr
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--metadata-partitions", 1), "--metadata-partitions: the cluster shows how many there are"),
        (("--produce-to", "a:1"), "--produce-to reads the topic of its brokers itself"),
        (("--log-dirs", LOGS), "--log-dirs is for brokers that are stopped"),
        (("--lost-metadata-partition", 0), "--lost-metadata-partition: partition 0 was read"),
    ],
)
def test_options_of_tier_metadata_that_a_running_cluster_excludes(
    options: tuple[object, ...], message: str, played: PlayedTopic
) -> None:
    run = snaprebuild("tier", "metadata", *COPIES, "--bootstrap-server", "cluster:9092", *options)
    assert run.exit_code == 2
    assert message in run.stderr


@pytest.mark.parametrize("verb", ["audit", "inventory", "metadata", "repair"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bootstrap-server", "nowhere"), "--bootstrap-server: expected HOST:PORT"),
        (("--bootstrap-server", "a:1", "--metadata-log", LOGS), "--bootstrap-server and --metadata-log name the same records"),
        (("--command-config", "x"), "--command-config goes with --bootstrap-server"),
    ],
)
def test_options_that_do_not_go_together(verb: str, options: tuple[object, ...], message: str, tmp_path: Path) -> None:
    run = snaprebuild("tier", verb, FIXTURES / "tiered-local" / "remote", *options)
    assert run.exit_code == 2
    assert message in run.stderr
