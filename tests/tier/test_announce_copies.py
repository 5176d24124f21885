"""An upload that announces its copies to a cluster.

Wherever it stops or fails, brokers never know of a copy that is not whole, and the next run announces each that they lack, once.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiven_reader import Copy, read_copies
from log_dirs import copy_of
from metadata_logs import uuid_bytes
from uploads import files, identity, started_record, upload
from watched_store import Calls, CrashError, Watched

from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import OutcomeUnknownError, ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.remote.metadata_topic import ClusterTopic
from snaprebuild.storage.store import S3Settings
from snaprebuild.tier.upload.announce import Announcer
from snaprebuild.tier.upload.model import StoreUpload

TOPIC_ID = "re4KsInsTuWoiDfugH54Qw"
STARTED, FINISHED, DELETING, DELETED = range(4)
HEADER = b"\1\0\0", b"\1\1\0"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """One partition with two rolled segments."""
    directory = copy_of("kafka4-mixed", tmp_path) / "deleted-0"
    assert TOPIC_ID in (directory / "partition.metadata").read_text()
    return directory


def identity_of(segment_id: str) -> bytes:
    return identity("deleted", TOPIC_ID, segment_id)


def started(copy: Copy) -> bytes:
    return started_record(copy, "deleted", TOPIC_ID)


def update(segment_id: str, state: int) -> bytes:
    return b"\1\1\0" + identity_of(segment_id) + struct.pack(">iq", 1, 7) + b"\0" + bytes([state]) + b"\0"


@dataclass
class Cluster:
    """Its ``__remote_log_metadata``, here of one partition, and one topic. ``before_append`` is called with each value that comes."""

    records: list[bytes | None] = field(default_factory=list)
    before_append: Callable[[bytes], None] = lambda _value: None
    topic_id: str = TOPIC_ID
    has_metadata_topic: bool = True
    first: int = 0

    def topics(self, names: Sequence[str]) -> dict[str, ClusterTopic]:
        own = {"__remote_log_metadata": ClusterTopic(uuid_bytes("AAAAAAAAAAAAAAAAAAAAAQ"), frozenset({0}))}
        found = {"deleted": ClusterTopic(uuid_bytes(self.topic_id), frozenset({0})), **(own if self.has_metadata_topic else {})}
        return {name: found[name] for name in names if name in found}

    def state_of(self, segment_id: str) -> list[str]:
        """States of a copy in the records."""
        reported = [value for value in self.records if value is not None and identity_of(segment_id) in value]
        return ["started" if value.startswith(HEADER[0]) else f"state {value[-2]}" for value in reported]


class Connection:
    """One run's."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._read = cluster, cluster.first

    def topics(self, names: Sequence[str]) -> dict[str, ClusterTopic]:
        return self._cluster.topics(names)

    def place(self, partition: int) -> str:
        return f"cluster, partition {partition}"

    def first_offset(self, partition: int) -> int:
        assert partition == 0
        return self._cluster.first

    def read_new(self, partition: int) -> Iterator[tuple[int, bytes | None]]:
        assert partition == 0
        for value in self._cluster.records[self._read :]:
            yield self._read, value
            self._read += 1

    def append(self, partition: int, value: bytes) -> None:
        assert partition == 0
        self._cluster.before_append(value)
        self._cluster.records.append(value)


def run(
    logs: Path, root: Path, cluster: Cluster, calls: Calls | None = None, *, uploader: str = "me", is_dry: bool = False
) -> StoreUpload:
    topic: Any = Connection(cluster) if calls is None else Watched(Connection(cluster), calls)
    announcer = Announcer.of(topic, [TopicIdPartition("deleted", uuid_bytes(TOPIC_ID), 0)])
    result = upload(
        logs,
        str(root),
        S3Settings(run="r"),
        calls,
        uploader=uploader,
        metadata_partitions=announcer.partitions,
        dry_run=is_dry,
        logs=announcer.logs,
        verified=announcer.verified,
        announcer=announcer,
    )
    result.findings += announcer.findings
    return result


def actions(result: StoreUpload) -> list[tuple[str, str | None]]:
    return [(str(each.action), each.announced and str(each.announced)) for each in result.partitions[0].segments]


def check_announced(cluster: Cluster, root: Path) -> None:
    """Every record is one of a copy that is whole, and of each there are at most two, in their order."""
    whole = {copy.segment_id: copy for copy in read_copies(files(root))} if root.exists() else {}
    by_copy = {segment_id: cluster.state_of(segment_id) for segment_id in whole}
    assert sum(map(len, by_copy.values())) == len(cluster.records), "a record of a copy that is not whole"
    assert all(reported == ["started", "state 1"][: len(reported)] for reported in by_copy.values())
    for copy in whole.values():
        assert not by_copy[copy.segment_id] or started(copy) in cluster.records


def check_finished(cluster: Cluster, root: Path) -> None:
    check_announced(cluster, root)
    copies = read_copies(files(root))
    assert len(copies) == 2
    # In the order of the log: after a gap brokers take what is missing for uploaded.
    reported = [value for copy in sorted(copies, key=lambda each: each.base_offset) for value in [started(copy)]]
    assert cluster.records[::2] == reported
    assert [cluster.state_of(copy.segment_id) for copy in copies] == [["started", "state 1"]] * 2


def test_a_run_and_a_second_one(logs: Path, tmp_path: Path) -> None:
    cluster, root = Cluster(), tmp_path / "store"
    assert actions(run(logs, root, cluster, is_dry=True)) == [("would-upload", None)] * 2
    assert not cluster.records
    assert actions(run(logs, root, cluster)) == [("uploaded", "now")] * 2
    check_finished(cluster, root)
    before = list(cluster.records)
    assert actions(run(logs, root, cluster)) == [("finished-before", "before")] * 2
    assert actions(run(logs, root, cluster, uploader="another")) == [("present", None)] * 2
    assert cluster.records == before


@pytest.mark.full
def test_a_crash_at_every_call(logs: Path, tmp_path: Path) -> None:
    calls = Calls()
    run(logs, tmp_path / "whole", Cluster(), calls)
    assert calls.names.count("append") == 4
    stops = set()
    for number in range(calls.count):
        for is_done in (False, True):
            cluster, root = Cluster(), tmp_path / f"{number}-{is_done}"
            with pytest.raises(CrashError):
                run(logs, root, cluster, Calls(number, is_done=is_done))
            check_announced(cluster, root)
            stops.add((len(files(root)) if root.exists() else 0, len(cluster.records)))
            assert not [each for each in run(logs, root, cluster).findings if each.severity]
            check_finished(cluster, root)
    # Each of eight objects and four records, in one row: never a record before the last object of its copy.
    assert stops == {(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (4, 2), (5, 2), (6, 2), (7, 2), (8, 2), (8, 3), (8, 4)}


@pytest.mark.parametrize(
    ("number", "is_appended"),
    [(0, True), (3, False), *(pytest.param(*each, marks=pytest.mark.full) for each in ((0, False), (3, True)))],
)
def test_an_append_whose_outcome_is_unknown(logs: Path, tmp_path: Path, number: int, is_appended: bool) -> None:
    cluster, root, numbers = Cluster(), tmp_path / "store", count()

    def fail(value: bytes) -> None:
        if next(numbers) == number:
            if is_appended:
                cluster.records.append(value)
            raise OutcomeUnknownError("whether a record was appended is not known: timed out", path="cluster")

    cluster.before_append = fail
    result = run(logs, root, cluster)
    assert [action for action, _ in actions(result)] == [["failed", "held-back"], ["uploaded", "failed"]][number // 2]
    (finding,) = [each for each in result.findings if each.code == "storage-failed"]
    state = ("STARTED", "FINISHED")[number % 2]
    assert f"COPY_SEGMENT_{state} of the copy" in finding.message
    assert finding.message.endswith("whose objects are complete; run again: records that are in the topic are not produced twice")
    check_announced(cluster, root)
    assert not [each for each in run(logs, root, cluster).findings if each.severity]
    check_finished(cluster, root)


def test_errors_are_reported_as_what_they_are(logs: Path, tmp_path: Path) -> None:
    for error in (
        WriteFailedError("a record was refused: not authorized"),
        ReadFailedError("no answer"),
        OSError("a fault of ours"),
    ):

        def fail(_value: bytes, error: Exception = error) -> None:
            raise error

        cluster = Cluster(before_append=fail)
        if isinstance(error, OSError):
            with pytest.raises(OSError, match="a fault of ours"):
                run(logs, tmp_path / "store", cluster)
        else:
            (finding,) = [each for each in run(logs, tmp_path / "store", cluster).findings if each.code == "storage-failed"]
            assert str(error) in finding.message


def test_a_record_that_does_not_appear(logs: Path, tmp_path: Path) -> None:
    """Appended, as the cluster says, and not there."""
    cluster = Cluster()
    cluster.before_append = lambda value: cluster.records.pop() if value.startswith(HEADER[1]) else None  # type: ignore[assignment,return-value,func-returns-value]
    result = run(logs, tmp_path / "store", cluster)
    assert [action for action, _ in actions(result)] == ["failed", "held-back"]
    assert "are not in the topic as they should be" in result.findings[0].message


def test_somebody_else_announced_a_copy_meanwhile(logs: Path, tmp_path: Path) -> None:
    """A leader that runs uploads the same segment: ours is not announced, and nothing that is after it is held up."""
    cluster, root = Cluster(), tmp_path / "store"
    run(logs, root, cluster, is_dry=True)
    theirs = "AAAAAAAAAAAAAAAAAAAAAw"

    class Meanwhile(Calls):
        def __call__(self, name: str, call: Callable[[], object]) -> object:
            if name == "read_new" and not cluster.records and root.exists() and (copies := read_copies(files(root))):
                value = started(copies[0]).replace(uuid_bytes(copies[0].segment_id), uuid_bytes(theirs))
                cluster.records += [value, update(theirs, FINISHED)]
            return super().__call__(name, call)

    result = run(logs, root, cluster, Meanwhile())
    assert actions(result) == [("present", "needless"), ("uploaded", "now")]
    assert [each.code for each in result.findings] == ["tier-upload-needless", "tier-upload-not-compared"]
    first, second = sorted(read_copies(files(root)), key=lambda copy: copy.base_offset)
    assert cluster.state_of(first.segment_id) == []
    assert cluster.state_of(second.segment_id) == ["started", "state 1"]


def test_what_brokers_deleted_does_not_come_back(logs: Path, tmp_path: Path) -> None:
    cluster, root = Cluster(), tmp_path / "store"
    run(logs, root, cluster)
    first = min(read_copies(files(root)), key=lambda copy: copy.base_offset)
    cluster.records += [update(first.segment_id, state) for state in (DELETING, DELETED)]
    for path in root.rglob(f"*{first.segment_id}*"):
        path.unlink()
    before = list(cluster.records), files(root)
    result = run(logs, root, cluster)
    assert [action for action, _ in actions(result)] == ["refused", "held-back"]
    assert "it must not come back (deleted)" in result.findings[0].message
    assert (cluster.records, files(root)) == before


def test_another_topic_of_that_name(logs: Path, tmp_path: Path) -> None:
    root, other = tmp_path / "store", "AAAAAAAAAAAAAAAAAAAAAw"
    result = run(logs, root, Cluster(topic_id=other))
    assert [action for action, _ in actions(result)] == ["refused", "held-back"]
    assert (
        f"the topic deleted of the cluster has the id {other}, and this one {TOPIC_ID} (other-topic-id)"
        in result.findings[0].message
    )
    assert not root.exists()


def test_a_cluster_without_remote_storage(logs: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no such topic: brokers make it .* remote\.log\.storage\.system\.enable=true"):
        run(logs, tmp_path / "store", Cluster(has_metadata_topic=False))


@pytest.mark.parametrize(("what", "code"), [("cut", "metadata-topic-cut"), ("bad", "damaged-metadata-topic")])
def test_a_topic_that_does_not_report_all(logs: Path, tmp_path: Path, what: str, code: str) -> None:
    """A copy of somebody else, of which it says nothing, is no longer known to be dead."""
    root = tmp_path / "store"
    run(logs, root, Cluster(), uploader="first")
    whole, cut = (
        Cluster(records=[None]),
        Cluster(records=[None] * 5, first=5) if what == "cut" else Cluster(records=[b"\1\0\7nonsense"]),
    )
    run_of_another = run(logs, root, whole, uploader="first", is_dry=True)
    assert not run_of_another.findings
    result = run(logs, root, cut, uploader="second")
    assert [action for action, _ in actions(result)] == ["unverified", "held-back"]
    assert code in [each.code for each in result.findings]
