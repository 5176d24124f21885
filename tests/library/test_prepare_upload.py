"""``prepare_upload``: everything that goes with a segment, as the plugin was once given it, or a refusal that says why."""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    copy_of,
    entries_in,
    make_log_dir,
    marker,
    partition_fixture,
    remove_snapshots,
    snapshot_name,
    truth,
)
from manifests import FIXTURES, PartitionFixture
from sentences import CHANGED_WHILE_READ, CHECKSUM_DIFFERS

import snaprebuild
from snaprebuild import Origin, PreparedUpload, ReplayOptions, SnapshotRefusedError, UploadRefusedError, UsageError, prepare_upload
from snaprebuild.tier.upload import prepare as operation

EARLY = ReplayOptions(as_of_ms=0)
TOPIC_ID = "pnG54XS0SyKCbPV6BzO-OQ"
READS: dict[str, Any] = json.loads((FIXTURES / "aiven-layout" / "plugin-reads.json").read_text())


def log_of(directory: Path, base: int) -> Path:
    return directory / f"{base:020d}.log"


def stable_offset(fixture: PartitionFixture) -> int:
    """The last stable offset after a clean stop, by the entries that Kafka's own classes have at the log end."""
    last = fixture.segments[-1]
    return min(
        (each.current_txn_first_offset for each in last.entries if each.current_txn_first_offset >= 0), default=last.next_offset
    )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


GIVEN = [
    (name, number)
    for name, variant in READS["variants"].items()
    for number, segment in enumerate(variant["segments"])
    if segment["source"]["changed"] is None and segment["disease"] is None
]


@pytest.mark.parametrize(("name", "number"), GIVEN)
def test_what_the_plugin_was_given(name: str, number: int) -> None:
    """By the test bed of the plugin itself, which took segments of bundled directories."""
    given = READS["variants"][name]["segments"][number]
    reported, golden = given["metadata"], given["golden"]
    fixture = partition_fixture(given["source"]["log_dir"], given["source"]["partition"])
    path = log_of(fixture.directory, reported["start_offset"])
    topic_id = None if (fixture.directory / "partition.metadata").exists() else reported["topic_id"]
    if reported["end_offset"] + 1 > stable_offset(fixture):
        with pytest.raises(UploadRefusedError, match="the last stable offset is") as refused:
            prepare_upload(path, topic_id=topic_id, options=EARLY)
        assert refused.value.reason == "above-last-stable-offset"
        return
    upload = prepare_upload(path, topic_id=topic_id, options=EARLY)
    assert (upload.start_offset, upload.end_offset) == (reported["start_offset"], reported["end_offset"])
    assert (upload.topic, upload.partition, upload.log_path) == (reported["topic"], reported["partition"], str(path))
    assert (upload.size_bytes, upload.max_timestamp_ms) == (reported["segment_size"], reported["max_timestamp_ms"])
    assert {str(each.epoch): each.start_offset for each in upload.leader_epochs} == reported["leader_epochs"]
    assert upload.txn_index_empty is reported["txn_index_empty"]
    assert upload.leader_epoch_checkpoint.decode() == given["leader_epoch_text"]
    for index, data in (
        ("offset", upload.offset_index),
        ("timestamp", upload.time_index),
        ("transaction", upload.transaction_index),
    ):
        expected = golden[index]
        assert (data is None) == (expected is None)
        assert data is None or (len(data), sha256(data)) == (expected["size"], expected["sha256"])
    assert sha256(path.read_bytes()) == golden["segment"]["sha256"]
    entries = sorted(entries_in(upload.snapshot.data), key=lambda each: each.producer_id)
    packed = b"".join(struct.pack(">qhiqiqiq", *(getattr(entry, field) for field in entry.__struct_fields__)) for entry in entries)
    assert sha256(packed) == given["right_snapshot"]["entries_sha256"]


def outcome(path: Path, options: ReplayOptions = EARLY, **others: Any) -> PreparedUpload | str:
    """The upload that is prepared, or the reason for which there is none."""
    try:
        return prepare_upload(path, options=options, **others)
    except UploadRefusedError as error:
        return error.reason
    except SnapshotRefusedError:
        return "snapshot"


@pytest.mark.parametrize("directory", ["kafka4-compacted/logs/compacted-0", "txn-state4/logs/__transaction_state-0"])
def test_what_brokers_never_tier(directory: str) -> None:
    assert outcome(log_of(FIXTURES / directory, 0)) == "never-tiered"


def test_a_neighbour_spares_the_rest(tmp_path: Path) -> None:
    mixed = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    remove_snapshots(mixed)
    bases = sorted(int(path.stem) for path in mixed.glob("*.log"))
    after = None
    for base in bases[:6]:
        alone = prepare_upload(log_of(mixed, base), topic_id=TOPIC_ID, options=EARLY)
        behind = prepare_upload(log_of(mixed, base), topic_id=TOPIC_ID, options=EARLY, after=after)
        assert behind.snapshot.read_bytes == log_of(mixed, base).stat().st_size
        assert behind.snapshot.data == alone.snapshot.data
        assert behind.snapshot.origin is Origin.REBUILT
        after = behind.snapshot


# ---------------------------------------------------------------------------------------------------------------- refusals


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return copy_of("kafka4-mixed", tmp_path)


def refused(path: Path, reason: str, **options: Any) -> str:
    with pytest.raises(UploadRefusedError) as error:
        prepare_upload(path, options=EARLY, **options)
    assert (error.value.reason, error.value.exit_code) == (reason, 3)
    return str(error.value)


def small_partition(root: Path, segments: dict[int, bytes], *, end: int, watermark: int | None = None) -> Path:
    """A partition whose indexes are empty, which contradicts nothing."""
    watermark = end if watermark is None else watermark
    make_log_dir(root, replication_offset_checkpoint=f"0\n1\nt 0 {watermark}\n", recovery_points={"t-0": end})
    directory = root / "t-0"
    directory.mkdir()
    for base, data in segments.items():
        log_of(directory, base).write_bytes(data)
        for suffix in ("index", "timeindex"):
            (directory / f"{base:020d}.{suffix}").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    return directory


def test_no_active_segment_and_no_unknown_one(logs: Path) -> None:
    mixed = logs / "mixed-0"
    bases = sorted(int(path.stem) for path in mixed.glob("*.log"))
    assert "is the active segment" in refused(log_of(mixed, bases[-1]), "active-segment")
    for wrong in (log_of(mixed, 1), mixed, mixed / "leader-epoch-checkpoint"):
        with pytest.raises(UsageError):
            prepare_upload(wrong)


@pytest.mark.parametrize(("text", "reason"), [(None, "unknown-high-watermark"), ("0\n1\nmixed 0 686\n", "above-high-watermark")])
def test_nothing_that_is_not_known_to_be_replicated(logs: Path, text: str | None, reason: str) -> None:
    checkpoint = logs / "replication-offset-checkpoint"
    checkpoint.unlink() if text is None else checkpoint.write_text(text)
    refused(log_of(logs / "mixed-0", 0), reason)
    assert prepare_upload(log_of(logs / "mixed-0", 0), options=EARLY, high_watermark=8334).end_offset == 686
    # A transaction is open at 687 that a later marker ends.
    refused(log_of(logs / "mixed-0", 0), "above-last-stable-offset", high_watermark=687)
    refused(log_of(logs / "mixed-0", 0), "above-high-watermark", high_watermark=686)


@pytest.mark.parametrize(
    ("tail", "watermark", "is_stable"),
    [
        ([], 10, False),
        ([marker(6, 1)], 10, True),
        ([marker(6, 1, commit=False)], 10, True),
        ([marker(6, 2)], 10, False),
        ([batch(6, producer_id=1, sequence=1, attributes=0x10), marker(7, 1)], 10, True),
        # The marker itself must be replicated, too.
        ([marker(6, 1)], 6, False),
        ([marker(6, 1)], 7, True),
    ],
)
def test_an_open_transaction_holds_back(tmp_path: Path, tail: list[bytes], watermark: int, is_stable: bool) -> None:
    """A transaction that begins in the first segment; its marker is in the second, or nowhere."""
    open_batch = batch(1, producer_id=1, attributes=0x10)
    first, second = batch(0) + open_batch + batch(2), batch(3, count=3) + b"".join(tail)
    offset = 3 + 3 + len(tail)
    second += batch(offset, count=10 - offset)
    directory = small_partition(tmp_path / "logs", {0: first, 3: second, 10: b""}, end=10, watermark=watermark)
    if is_stable:
        assert prepare_upload(log_of(directory, 0), options=EARLY).end_offset == 2
    else:
        assert "the last stable offset is 1, where producer 1" in refused(log_of(directory, 0), "above-last-stable-offset")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("index", "missing-offset-index"), ("timeindex", "missing-time-index"), ("txnindex", "index-contradicts-log")],
)
def test_a_missing_index(logs: Path, name: str, reason: str) -> None:
    """The log itself shows that there must be an index of aborted transactions."""
    (logs / "mixed-0" / f"{0:020d}.{name}").unlink()
    refused(log_of(logs / "mixed-0", 0), reason)


def spoilt(path: Path, at: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)


SPOILS: list[tuple[str, Callable[[Path], None]]] = [
    ("index", lambda path: spoilt(path, 4, (1).to_bytes(4, "big"))),
    ("index", lambda path: path.write_bytes(path.read_bytes() + bytes(8))),
    ("index", lambda path: path.write_bytes(path.read_bytes()[:-1])),
    ("timeindex", lambda path: spoilt(path, 6, b"\1\1")),
    ("timeindex", lambda path: path.write_bytes(path.read_bytes() + bytes(12))),
    ("txnindex", lambda path: spoilt(path, 2, (77).to_bytes(8, "big"))),
    ("txnindex", lambda path: path.write_bytes(path.read_bytes()[34:])),
    ("txnindex", lambda path: path.write_bytes(b"")),
]


@pytest.mark.parametrize(("name", "spoil"), SPOILS)
def test_an_index_that_contradicts_the_log(logs: Path, name: str, spoil: Callable[[Path], None]) -> None:
    path = logs / "mixed-0" / f"{0:020d}.{name}"
    spoil(path)
    assert str(path) in refused(log_of(logs / "mixed-0", 0), "index-contradicts-log")


def test_a_segment_that_is_not_whole(tmp_path: Path) -> None:
    whole = batch(0) + batch(1)
    for number, data in enumerate((whole[:-1], whole + b"\0" * 7, batch(0) + batch(1, count=3))):
        directory = small_partition(tmp_path / str(number), {0: data, 2: batch(2), 3: b""}, end=3)
        refused(log_of(directory, 0), "damaged-segment")
    broken = bytearray(batch(0) + batch(1))
    broken[-1] ^= 1
    directory = small_partition(tmp_path / "crc", {0: bytes(broken), 2: batch(2), 3: b""}, end=3)
    assert f"{CHECKSUM_DIFFERS}byte {len(batch(0))} differs" in refused(log_of(directory, 0), "damaged-segment")
    refused(log_of(small_partition(tmp_path / "empty", {0: b"", 2: batch(2)}, end=3), 0), "empty-segment")


def test_leader_epochs(logs: Path) -> None:
    path, log = logs / "mixed-0" / "leader-epoch-checkpoint", log_of(logs / "mixed-0", 687)
    path.write_text("0\n4\n0 0\n2 600\n5 700\n9 1231\n")
    upload = prepare_upload(log, options=EARLY)
    assert [(each.epoch, each.start_offset) for each in upload.leader_epochs] == [(2, 687), (5, 700)]
    assert upload.leader_epoch_checkpoint == b"0\n3\n0 0\n2 600\n5 700\n", "not trimmed at the start of the segment"
    for text, reason in (
        ("0\n0\n", "no-leader-epochs"),
        ("0\n1\n0 1231\n", "no-leader-epochs"),
        ("0\n2\n1 0\n1 5\n", "bad-leader-epochs"),
        ("0\n2\n1 5\n2 5\n", "bad-leader-epochs"),
        ("1\n0\n", "bad-leader-epochs"),
    ):
        path.write_text(text)
        refused(log, reason)
    path.unlink()
    refused(log, "no-leader-epochs")


def test_the_topic_id(logs: Path, tmp_path: Path) -> None:
    log, path = log_of(logs / "mixed-0", 0), logs / "mixed-0" / "partition.metadata"
    own = path.read_text().split()[-1]
    assert prepare_upload(log, topic_id=own, options=EARLY).topic_id == prepare_upload(log, options=EARLY).topic_id
    refused(log, "other-topic-id", topic_id=TOPIC_ID)
    path.unlink()
    for wrong in (None, "A" * 22):
        refused(log, "no-topic-id", topic_id=wrong)
    with pytest.raises(UsageError, match="topic_id: uuid: expected 22 characters"):
        prepare_upload(log, topic_id="x", options=EARLY)
    assert prepare_upload(log, topic_id=own, options=EARLY).topic == "mixed"


def test_a_wrong_snapshot_is_rebuilt(logs: Path) -> None:
    (logs / "mixed-0" / snapshot_name(687)).write_bytes(EMPTY_SNAPSHOT)
    upload = prepare_upload(log_of(logs / "mixed-0", 0), options=EARLY)
    assert upload.snapshot.origin is Origin.REBUILT
    assert entries_in(upload.snapshot.data) == truth("kafka4-mixed", "mixed-0")[687]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *(("index", "touched"), ("timeindex", "gone"), ("txnindex", "gone"), ("log", "touched"), ("log", "gone")),
        *(("leader-epoch-checkpoint", "touched"), ("partition.metadata", "gone")),
    ],
)
def test_changed_underfoot(logs: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> None:
    directory = logs / "mixed-0"
    path = directory / (name if "-" in name or "." in name else f"{0:020d}.{name}")
    stable = operation.check_stable

    def somebody_is_at_work(*arguments: Any) -> None:
        os.utime(path, ns=(1, 1)) if what == "touched" else path.unlink()
        stable(*arguments)

    upload = prepare_upload(log_of(directory, 0), options=EARLY)
    monkeypatch.setattr(operation, "check_stable", somebody_is_at_work)
    is_deleted = (name, what) == ("log", "gone")
    assert str(path) in refused(log_of(directory, 0), "below-log-start" if is_deleted else "changed")
    with pytest.raises(UploadRefusedError, match=CHANGED_WHILE_READ):
        upload.check_unchanged()


def test_a_transaction_index_that_appears(tmp_path: Path) -> None:
    directory = small_partition(tmp_path / "logs", {0: batch(0), 1: batch(1), 2: b""}, end=2)
    index = directory / f"{0:020d}.txnindex"
    upload = prepare_upload(log_of(directory, 0), options=EARLY)
    assert (upload.transaction_index, upload.txn_index_empty) == (None, True)
    index.write_bytes(b"")
    with pytest.raises(UploadRefusedError, match=CHANGED_WHILE_READ):
        upload.check_unchanged()
    assert prepare_upload(log_of(directory, 0), options=EARLY).transaction_index == b""


def test_a_topic_that_may_be_compacted(logs: Path) -> None:
    (logs / "cleaner-offset-checkpoint").write_text("0\n1\n")
    refused(log_of(logs / "mixed-0", 0), "unknown-cleaner")
    (logs / "cleaner-offset-checkpoint").write_text("0\n1\nmixed 0 5\n")
    refused(log_of(logs / "mixed-0", 0), "never-tiered")


def test_below_the_log_start(logs: Path) -> None:
    (logs / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 700\n")
    refused(log_of(logs / "mixed-0", 0), "below-log-start")
    assert outcome(log_of(logs / "mixed-0", 687)) != "below-log-start"


def test_a_forgetful_follower_is_no_source() -> None:
    """Two real replicas that hold the end of one log: the leader, and a follower that lost eleven producers when it started."""
    nodes = FIXTURES / "follower-lost-state"
    whole, lost = (sorted((nodes / node / "payments-0").glob("*.log"))[:-1] for node in ("node1", "node2"))
    assert whole
    assert lost
    for log in lost:
        assert outcome(log) == outcome(log, replace(EARLY, allow_unproven=True)) == "unknown-producers"
    for log in whole:
        upload = outcome(log)
        assert isinstance(upload, PreparedUpload)
        assert upload.snapshot.data == (log.parent / snapshot_name(upload.end_offset + 1)).read_bytes()


def test_limits(logs: Path) -> None:
    with pytest.raises(SnapshotRefusedError, match="max_bytes is 1"):
        prepare_upload(log_of(logs / "mixed-0", 0), options=EARLY, max_bytes=1)
    with pytest.raises(snaprebuild.RefusedError, match="deadline has passed"):
        prepare_upload(log_of(logs / "mixed-0", 0), options=EARLY, timeout_s=0.0)
