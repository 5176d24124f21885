"""Why a late transaction is open: a table of what coordinator, log and metadata log may show together.

The records are in the order in which ``TransactionCoordinator`` writes them; ``test_hanging_transactions.py`` has those of real brokers.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from kafka_file_writers import write_transaction_state
from log_dirs import TRANSACTIONAL, batch, flip, make_log_dir, marker, record, varint, write_partition
from sentences import FIND_HANGING

from formats.log.record_batch import ATTRIBUTE_LOG_APPEND_TIME
from formats.message_schema import load_schemas
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType, write_cluster_metadata_record
from snaprebuild.cluster.metadata.leadership import read_leaderships
from snaprebuild.inspect.hang_reasons import HangReason
from snaprebuild.inspect.transactions import read_transactions
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
PRODUCER, NODE = 7, 1
EXPIRATION_MS = 86_400_000
T_ID, STATE_ID = bytes(15) + b"\7", bytes(15) + b"\x08"
DISK = bytes(15) + b"\x09"
HERE, ELSEWHERE = [("t", 0)], [("t", 1)]
BEGIN_MS, WRITTEN_MS, DECIDED_MS, DONE_MS = 100_000, 100_010, 100_020, 100_030


def state(
    status: int, epoch: int, at_ms: int, partitions: Sequence[tuple[str, int]] = (), **fields: Any
) -> tuple[int, dict[str, Any]]:
    """A record of ``__transaction_state``, and its timestamp."""
    values = {
        "producerId": PRODUCER,
        "producerEpoch": epoch,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": status,
        "transactionPartitions": [{"topic": topic, "partitionIds": [number]} for topic, number in partitions] or None,
        "transactionLastUpdateTimestampMs": at_ms,
        "transactionStartTimestampMs": -1 if status == EMPTY else BEGIN_MS,
    }
    return at_ms, values | fields


BEGUN = [state(EMPTY, 0, BEGIN_MS - 1), state(ONGOING, 0, BEGIN_MS, HERE)]
COMMITTED = [*BEGUN, state(PREPARE_COMMIT, 0, DECIDED_MS, HERE), state(COMPLETE_COMMIT, 0, DONE_MS)]
COMMITTED_V2 = [*BEGUN, state(PREPARE_COMMIT, 1, DECIDED_MS, HERE), state(COMPLETE_COMMIT, 1, DONE_MS)]
"""With transaction version 2 the prepared record has the next epoch."""
TIMED_OUT = [*BEGUN, state(PREPARE_ABORT, 1, DECIDED_MS, HERE), state(COMPLETE_ABORT, 1, DONE_MS)]
ELSEWHERE_ONLY = [
    state(EMPTY, 0, BEGIN_MS - 1),
    state(ONGOING, 0, BEGIN_MS, ELSEWHERE),
    state(PREPARE_COMMIT, 0, DECIDED_MS, ELSEWHERE),
    state(COMPLETE_COMMIT, 0, DONE_MS),
]
TOMBSTONE = (DONE_MS + 1, None)
OTHER_ID = state(EMPTY, 0, 900_000, producerId=99)


def metadata_value(kind: MetadataRecordType, version: int, **fields: Any) -> bytes:
    (schema,) = [each for each in load_schemas("cluster-metadata").values() if each.api_key == kind]
    return write_cluster_metadata_record(ClusterMetadataRecord(int(kind), schema.name, version, schema.body.defaults() | fields))


def placed(topic_id: bytes, leader: int, isr: list[int], number: int = 0) -> bytes:
    fields = {"replicas": [1, 2], "isr": isr, "leader": leader, "leaderEpoch": 0, "partitionEpoch": 0, "directories": [DISK, DISK]}
    return metadata_value(MetadataRecordType.PARTITION, 1, partitionId=number, topicId=topic_id, **fields)


def elected(leader: int, topic_id: bytes = T_ID, **fields: Any) -> bytes:
    return metadata_value(MetadataRecordType.PARTITION_CHANGE, 1, partitionId=0, topicId=topic_id, leader=leader, **fields)


def topic(name: str, topic_id: bytes) -> bytes:
    return metadata_value(MetadataRecordType.TOPIC, 0, name=name, topicId=topic_id)


def cluster(leader: int, isr: Sequence[int] = (1, 2)) -> list[tuple[int, bytes]]:
    """Partition 0 of ``t`` and of ``__transaction_state``, led by a broker."""
    records = [
        topic("t", T_ID),
        placed(T_ID, leader, list(isr)),
        topic("__transaction_state", STATE_ID),
        placed(STATE_ID, 2, [1, 2]),
    ]
    return [(0, each) for each in records]


UNCLEAN = elected(NODE, isr=[NODE], leaderRecoveryState=1)
LEADS, FOLLOWS, LED_BY_2_ALONE = cluster(NODE), cluster(2), cluster(2, [2])
LATER, EARLIER = DONE_MS + 50, DECIDED_MS - 1


@dataclass(frozen=True)
class Case:
    """Contents of the files; ``data`` None for one batch of the transaction."""

    reason: str
    states: Sequence[tuple[int, dict[str, Any] | None]]
    metadata: Sequence[tuple[int, bytes]] = ()
    aborts: bool = False
    says: str = ""
    evidence: str = ""
    data: bytes | None = None
    epoch: int = 0
    as_of_ms: int = 10**12
    high_watermark: int = 0
    written_ms: int = WRITTEN_MS
    """When the file of the partition was last written to."""


AFTER_ITS_MARKER = (
    batch(0, producer_id=PRODUCER, attributes=TRANSACTIONAL, timestamp=WRITTEN_MS)
    + marker(1, PRODUCER, timestamp=DECIDED_MS + 1)
    + batch(2, producer_id=PRODUCER, sequence=1, attributes=TRANSACTIONAL, timestamp=WRITTEN_MS + 1)
)
AFTER_AN_EARLIER_MARKER = (
    batch(0, producer_id=PRODUCER, attributes=TRANSACTIONAL, timestamp=BEGIN_MS - 50)
    + marker(1, PRODUCER, timestamp=BEGIN_MS - 40)
    + batch(2, producer_id=PRODUCER, sequence=1, attributes=TRANSACTIONAL, timestamp=WRITTEN_MS)
)
ONE = batch(0, producer_id=PRODUCER, attributes=TRANSACTIONAL, timestamp=WRITTEN_MS)
OF_LEADER_EPOCH_3 = ONE[:12] + (3).to_bytes(4, "big") + ONE[16:]  # the checksum does not cover it
OF_AN_EVENT = batch(0, producer_id=PRODUCER, attributes=TRANSACTIONAL, timestamp=5)

CASES = {
    "its timeout has not ended": Case("within_timeout", BEGUN, as_of_ms=BEGIN_MS + 60_000),
    "nobody aborted it": Case("over_timeout", [*BEGUN, OTHER_ID], says="has not aborted it"),
    "the copy is older than the timeout": Case("over_timeout", BEGUN, says="no newer record"),
    "its coordinator's partition has no leader": Case(
        "over_timeout", BEGUN, [*LEADS, (LATER, elected(-1, STATE_ID))], evidence="__transaction_state-0 has no leader"
    ),
    "its coordinator leads": Case("over_timeout", BEGUN, LEADS, evidence="broker 2 leads __transaction_state-0"),
    "a later epoch has the partition": Case("over_timeout", [*BEGUN, state(ONGOING, 1, BEGIN_MS, HERE)], LEADS),
    "the outcome is decided": Case("marker_pending", COMMITTED[:-1], LEADS, says="decided to commit"),
    "the outcome is decided, in the next epoch": Case("marker_pending", TIMED_OUT[:-1], LEADS, says="decided to abort"),
    "its partition has no leader": Case(
        "marker_pending", COMMITTED[:-1], [*LEADS, (LATER, elected(-1))], evidence="t-0 has no leader"
    ),
    "an unclean election after the commit": Case(
        "marker_lost", COMMITTED, [*LED_BY_2_ALONE, (LATER, UNCLEAN)], aborts=True, says="KAFKA-20716", evidence="leader 2 -> 1"
    ),
    "the same with transaction version 2": Case("marker_lost", COMMITTED_V2, [*LED_BY_2_ALONE, (LATER, UNCLEAN)], aborts=True),
    "the same after a timeout": Case("marker_lost", TIMED_OUT, [*LED_BY_2_ALONE, (LATER, UNCLEAN)], aborts=True, says="aborted"),
    "the same, and the next transaction elsewhere": Case(
        "marker_lost",
        [*COMMITTED_V2, state(ONGOING, 1, 200_000, ELSEWHERE, transactionStartTimestampMs=200_000)],
        [*LED_BY_2_ALONE, (LATER, UNCLEAN)],
        aborts=True,
    ),
    "the same, after an earlier marker of its producer": Case(
        "marker_lost", COMMITTED, [*LED_BY_2_ALONE, (LATER, UNCLEAN)], aborts=True, data=AFTER_AN_EARLIER_MARKER
    ),
    "the same, and the records before the decision are compacted away": Case(
        "marker_lost", COMMITTED_V2[2:], [*LED_BY_2_ALONE, (LATER, UNCLEAN)], aborts=True
    ),
    "an election from outside of the ISR, without a recovery state": Case(
        "marker_lost", COMMITTED, [*LED_BY_2_ALONE, (LATER, elected(NODE, isr=[NODE]))], aborts=True
    ),
    "an unclean election, and another leader since": Case(
        "marker_lost", COMMITTED, [*LED_BY_2_ALONE, (LATER, UNCLEAN), (LATER + 9, elected(2, isr=[1, 2]))]
    ),
    "an unclean election before the decision": Case(
        "marker_missing", COMMITTED, [*LED_BY_2_ALONE, (EARLIER, UNCLEAN)], aborts=True
    ),
    "a clean election after it": Case("marker_missing", COMMITTED, [*FOLLOWS, (LATER, elected(NODE))], aborts=True),
    "a replica that follows": Case("incomplete_replica", COMMITTED, FOLLOWS, evidence="broker 2 leads t-0"),
    "a replica of an unknown leader": Case("marker_missing", COMMITTED),
    "a topic that was made anew": Case(
        "marker_missing", COMMITTED, [(0, topic("t", STATE_ID)), (0, placed(STATE_ID, NODE, [NODE]))]
    ),
    "below its own high watermark": Case(
        "incomplete_replica", COMMITTED, LEADS, high_watermark=5, evidence="below its high watermark 5"
    ),
    "offsets without batches": Case(
        "incomplete_replica", COMMITTED, LEADS, says="could not be read whole", data=ONE + batch(5, timestamp=WRITTEN_MS)
    ),
    "a damaged batch": Case(
        "incomplete_replica",
        COMMITTED,
        LEADS,
        says="could not be read whole",
        data=ONE + batch(1, timestamp=WRITTEN_MS)[:-1] + b"?",
    ),
    "a batch after its marker": Case("late_append", COMMITTED, LEADS, aborts=True, data=AFTER_ITS_MARKER, evidence="the marker of"),
    "a batch after its marker on a follower": Case("late_append", COMMITTED, FOLLOWS, data=AFTER_ITS_MARKER),
    "a partition that was never added": Case("late_append", ELSEWHERE_ONLY, LEADS, aborts=True, says="never had this partition"),
    "records that were compacted away": Case("marker_missing", COMMITTED[-1:], LEADS, aborts=True, says="compacted away"),
    "an expired transactional id": Case("marker_missing", [*COMMITTED, TOMBSTONE], LEADS, aborts=True, evidence="a tombstone"),
    "an expired id whose other records are compacted": Case(
        "marker_missing", [COMMITTED[-1], TOMBSTONE], LEADS, aborts=True, says="compacted away"
    ),
    "a producer id that was replaced": Case(
        "marker_missing", [*COMMITTED, state(EMPTY, 0, LATER, producerId=8, previousProducerId=PRODUCER)], LEADS, aborts=True
    ),
    "a coordinator's log of an earlier epoch": Case("unknown", COMMITTED, LEADS, epoch=1, says="may still be alive"),
    "a coordinator's log that ends before the batch": Case(
        "unknown",
        COMMITTED,
        LEADS,
        says="may still be alive",
        data=batch(0, producer_id=PRODUCER, attributes=TRANSACTIONAL, timestamp=DONE_MS + 1),
        written_ms=DONE_MS + 1,
    ),
    "records with the time of an event, written after the end of the copy": Case(
        "unknown", COMMITTED, LEADS, says="may still be alive", data=OF_AN_EVENT, written_ms=DONE_MS + 1
    ),
    "the same, and a marker of another producer from before the end of the copy": Case(
        "marker_missing", COMMITTED, LEADS, aborts=True, data=OF_AN_EVENT + marker(1, 99, timestamp=DONE_MS), written_ms=DONE_MS + 1
    ),
    "the same, and a marker of another producer from after it": Case(
        "unknown", COMMITTED, LEADS, data=OF_AN_EVENT + marker(1, 99, timestamp=DONE_MS + 1), written_ms=DONE_MS + 9
    ),
    "the same, and a marker of another producer between two of its batches": Case(
        "unknown",
        COMMITTED,
        LEADS,
        data=OF_AN_EVENT
        + marker(1, 99, timestamp=DECIDED_MS)
        + batch(2, producer_id=PRODUCER, sequence=1, attributes=TRANSACTIONAL, timestamp=6),
        written_ms=DONE_MS + 1,
    ),
    "the same, with the time of the broker": Case(
        "marker_missing",
        COMMITTED,
        LEADS,
        aborts=True,
        data=batch(0, producer_id=PRODUCER, attributes=TRANSACTIONAL | ATTRIBUTE_LOG_APPEND_TIME, timestamp=WRITTEN_MS),
        written_ms=DONE_MS + 1,
    ),
    "the same, and the copy is that of the coordinator": Case(
        "late_append",
        ELSEWHERE_ONLY,
        [*LEADS, (EARLIER, elected(NODE, STATE_ID))],
        aborts=True,
        data=OF_AN_EVENT,
        written_ms=DONE_MS + 1,
    ),
    "a metadata log of an earlier leader": Case(
        "marker_missing",
        COMMITTED,
        LEADS,
        data=OF_LEADER_EPOCH_3,
    ),
    "records of others alone": Case("unknown", [state(ONGOING, 0, BEGIN_MS, HERE, producerId=8)], LEADS),
}


def tombstone(key: bytes) -> bytes:
    body = b"\0\0\0" + varint(len(key)) + key + varint(-1) + b"\0"
    return varint(len(body)) + body


def state_log(states: Sequence[tuple[int, dict[str, Any] | None]]) -> bytes:
    data = b""
    for offset, (at_ms, fields) in enumerate(states):
        key, value = write_transaction_state("other" if fields is OTHER_ID[1] else "id-7", fields or OTHER_ID[1])
        data += batch(offset, records=[tombstone(key) if fields is None else record(value, key=key)], timestamp=at_ms)
    return data


def written(place: Path, case: Case) -> Path:
    """A log directory of broker 1 with ``t-0``, ``__transaction_state-0``, and the metadata log if there is one."""
    log_dir = make_log_dir(place / "logs", replication_offset_checkpoint=f"0\n1\nt 0 {case.high_watermark}\n")
    data = case.data or batch(0, producer_id=PRODUCER, epoch=case.epoch, attributes=TRANSACTIONAL, timestamp=WRITTEN_MS)
    partition = write_partition(log_dir / "t-0", {0: data})
    os.utime(partition / f"{0:020d}.log", (case.written_ms / 1000, case.written_ms / 1000))
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n")
    write_partition(log_dir / "__transaction_state-0", {0: state_log(case.states)})
    if case.metadata:
        values = [batch(at, records=[record(value)], timestamp=at_ms) for at, (at_ms, value) in enumerate(case.metadata)]
        write_partition(log_dir / "__cluster_metadata-0", {0: b"".join(values)})
    return log_dir


def the_late_one(log_dir: Path, case: Case, *arguments: object) -> dict[str, Any]:
    run = in_json("inspect transactions", log_dir, "--as-of", case.as_of_ms, "--assume", "late_after_ms=1", *arguments)
    assert run.exit_code == 1, run.stderr
    (found,) = run.partition("t-0")["open"]
    assert found["is_late"]
    return dict(found)


@pytest.mark.parametrize("name", CASES)
def test_why_it_is_open(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    log_dir = written(tmp_path, case)
    metadata = str(log_dir / "__cluster_metadata-0")
    result = read_transactions(
        open_source([str(log_dir / "t-0")]),
        Run(clock=Clock(case.as_of_ms, EXPIRATION_MS), jobs=1),
        1,
        read_leaders=lambda wanted: read_leaderships(metadata, wanted) if case.metadata else None,
    )
    (found,) = [each for partition in result.partitions for each in partition.reported.open]
    assert found.hang_reason is not None
    assert found.reason is not None
    facts = " ".join(each.what for each in found.facts)
    assert (found.hang_reason.value, found.abort_commands is not None) == (case.reason, case.aborts), (found.reason, facts)
    assert case.says in found.reason
    assert case.evidence in facts
    if case.aborts:
        assert found.missing_evidence is None


def test_every_reason_has_a_case() -> None:
    assert {case.reason for case in CASES.values()} == {each.value for each in HangReason}


def test_evidence_has_its_place(tmp_path: Path) -> None:
    case = CASES["an unclean election after the commit"]
    found = the_late_one(written(tmp_path, case), case)
    places = [(Path(each["path"]).name, each["offset"], each["timestamp_ms"]) for each in found["facts"]]
    assert places == [
        ("__transaction_state-0", 2, DECIDED_MS),
        ("__transaction_state-0", 2, DECIDED_MS),
        ("__cluster_metadata-0", 4, LATER),
    ]


def test_another_copy_has_the_marker(tmp_path: Path) -> None:
    case = CASES["an unclean election after the commit"]
    log_dir = written(tmp_path, case)
    longer = batch(0, producer_id=PRODUCER, attributes=TRANSACTIONAL, timestamp=WRITTEN_MS) + marker(1, PRODUCER)
    write_partition(tmp_path / "leader" / "t-0", {0: longer})
    run = in_json("inspect transactions", log_dir, tmp_path / "leader", "--assume", "late_after_ms=1")
    (found,) = [each for partition in run.document["partitions"] for each in partition["open"]]
    assert (found["hang_reason"], found["abort_commands"]) == ("incomplete_replica", None)
    assert found["facts"][0]["path"] == str(tmp_path / "leader" / "t-0")


def test_a_metadata_log_that_is_older_than_the_log(tmp_path: Path) -> None:
    case = CASES["a metadata log of an earlier leader"]
    found = the_late_one(written(tmp_path, case), case)
    assert found["abort_commands"] is None
    assert found["missing_evidence"].startswith("a newer metadata log (--metadata DIR)")


def of_cluster(log_dir: Path, cluster_id: str) -> Path:
    (log_dir / "meta.properties").write_text(f"version=0\nbroker.id={NODE}\ncluster.id={cluster_id}\n")
    return log_dir


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_coordinator_of_another_cluster_proves_no_end(names: tuple[str, str], tmp_path: Path) -> None:
    """Each cluster numbers its producers from 0."""
    case = CASES["an unclean election after the commit"]
    over, alive = names
    of_cluster(written(tmp_path / over, case), "over")
    of_cluster(written(tmp_path / alive, replace(case, states=[OTHER_ID])), "alive")
    run = in_json("inspect transactions", tmp_path, "--assume", "late_after_ms=1")
    found = {Path(each["path"]).parent.parent.name: each["open"][0] for each in run.document["partitions"] if each["topic"] == "t"}
    assert (found[over]["hang_reason"], found[over]["abort_commands"] is None) == ("marker_lost", False)
    assert (found[alive]["hang_reason"], found[alive]["abort_commands"]) == ("unknown", None)


def test_copies_of_one_cluster_count_for_each_other(tmp_path: Path) -> None:
    """Brokers of one cluster, and a copy without its log directory."""
    case = CASES["an unclean election after the commit"]
    log_dir = of_cluster(written(tmp_path, replace(case, states=[OTHER_ID])), "one")
    other = of_cluster(written(tmp_path / "other", case), "one")
    bare = write_partition(tmp_path / "bare" / "__transaction_state-0", {0: state_log(case.states)})
    for copy in (other, bare):
        assert the_late_one(log_dir, case, "--transaction-state", copy)["hang_reason"] == "marker_lost"


def test_a_directory_without_topic_id_has_no_known_leader(tmp_path: Path) -> None:
    """The metadata log may be that of another topic with this name."""
    case = CASES["an unclean election after the commit"]
    log_dir = written(tmp_path, case)
    (log_dir / "t-0" / "partition.metadata").unlink()
    found = the_late_one(log_dir, case)
    assert (found["hang_reason"], found["abort_commands"]) == ("marker_missing", None)


def test_which_partitions_of_the_coordinators_are_missing(tmp_path: Path) -> None:
    case = CASES["records of others alone"]
    more = [placed(STATE_ID, 2, [1, 2], number) for number in (1, 2, 3, 4)]
    log_dir = written(tmp_path, replace(case, metadata=[*LEADS, *((0, each) for each in more)]))
    assert "the answer of the coordinators" in (the_late_one(written(tmp_path / "one", case), case)["missing_evidence"] or "")
    assert the_late_one(log_dir, case)["missing_evidence"] == "the partitions 1-4 of __transaction_state (--transaction-state DIR)"


def test_a_damaged_copy_proves_no_end(tmp_path: Path) -> None:
    """The record that begins the next transaction may be among those that cannot be read."""
    case = CASES["an unclean election after the commit"]
    log_dir = written(tmp_path, case)
    (log,) = (log_dir / "__transaction_state-0").glob("*.log")
    flip(log, log.stat().st_size - 3)
    (found,) = in_json("inspect transactions", log_dir).partition("t-0")["open"]
    assert (found["is_late"], found["hang_reason"], found["abort_commands"]) == (True, "unknown", None)
    assert found["missing_evidence"] == "a whole copy of __transaction_state-0 (--transaction-state DIR)"


def test_a_whole_copy_proves_no_end_next_to_a_damaged_one(tmp_path: Path) -> None:
    """The damaged copy may be the newer one."""
    case = CASES["an unclean election after the commit"]
    log_dir = written(tmp_path, case)
    newer = write_partition(tmp_path / "newer" / "__transaction_state-0", {0: state_log([*COMMITTED, OTHER_ID])})
    log = newer / f"{0:020d}.log"
    flip(log, log.stat().st_size - 3)
    options = ("--transaction-state", log_dir, "--transaction-state", newer)
    (found,) = in_json("inspect transactions", log_dir, *options).partition("t-0")["open"]
    assert (found["hang_reason"], found["abort_commands"]) == ("unknown", None)


def test_the_longest_copy_of_a_coordinators_log_counts(tmp_path: Path) -> None:
    """An older copy has the transaction as complete; the newer one has the next, with the same epoch."""
    case = CASES["an unclean election after the commit"]
    log_dir = written(tmp_path, case)
    alive = [*COMMITTED, state(ONGOING, 0, 200_000, HERE, transactionStartTimestampMs=200_000)]
    newer = write_partition(tmp_path / "newer" / "__transaction_state-0", {0: state_log(alive)})
    for order in ((log_dir, newer), (newer, log_dir)):
        options = [word for each in order for word in ("--transaction-state", each)]
        assert the_late_one(log_dir, case, *options)["hang_reason"] == "over_timeout"


def test_the_table_has_reason_evidence_and_command(tmp_path: Path) -> None:
    case = CASES["an unclean election after the commit"]
    text = snaprebuild("inspect", "transactions", written(tmp_path, case), "--assume", "late_after_ms=1").text
    assert "1 transaction is late in 1 partition." in text
    assert "Why: 1 marker lost." in text
    assert "t-0 from 0: marker lost. The coordinator committed the transaction" in text
    assert "An abort hides its records" in text
    assert "unclean election: leader 2 -> 1, leader epoch 1 (__cluster_metadata-0 offset 4" in text
    assert "abort --topic t --partition 0 --start-offset 0" in text
    assert "find-hanging" not in text
    case = CASES["the outcome is decided"]
    text = snaprebuild("inspect", "transactions", written(tmp_path / "pending", case), "--assume", "late_after_ms=1").text
    assert FIND_HANGING in text
    assert " abort --topic" not in text


def test_the_own_metadata_log_may_be_unreadable(tmp_path: Path) -> None:
    """Then the answer is that of a run without one, and the log is a finding; a log that was named is an error."""
    case = CASES["a replica of an unknown leader"]
    log_dir = written(tmp_path, case)
    (log_dir / "__cluster_metadata-0").write_bytes(b"")
    run = in_json("inspect transactions", log_dir)
    (found,) = run.partition("t-0")["open"]
    assert (found["hang_reason"], found["abort_commands"]) == ("marker_missing", None)
    assert run.codes["storage-failed"] == 1


def test_a_metadata_log_that_is_not_there(tmp_path: Path) -> None:
    case = CASES["the outcome is decided"]
    run = snaprebuild("inspect", "transactions", written(tmp_path, case), "--metadata", tmp_path / "none")
    assert run.exit_code == 2
