"""Verdicts where evidence is missing, damaged or older than the replica."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
import pytest
from log_dirs import cut
from manifests import CLUSTER, FIXTURES
from metadata_logs import append_metadata_record
from source_verdicts import REBUILD, UPLOAD, Break, break_end, break_marker, check, removed, verdicts, written

from formats.metadata.cluster_metadata import MetadataRecordType
from snaprebuild.cluster.source_check.verdict import SourceRule
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome

pytestmark = pytest.mark.usefixtures("each_image_once")

UNREGISTERED = {"brokerId": 1, "brokerEpoch": 15}
MARKS = "replication-offset-checkpoint"


def cut_and_unmarked(node: Path) -> None:
    """The recovery point shows it, too: after a clean stop all of the log is flushed."""
    break_end(node)
    removed(MARKS)(node)


def negative_mark(node: Path) -> None:
    (node / MARKS).write_text((node / MARKS).read_text().replace("orders 1 336", "orders 1 -5"))


def no_directory_id(node: Path) -> None:
    path = node / "meta.properties"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("directory.id")))


VERDICTS: dict[str, tuple[Break, dict[str, Any], dict[Purpose, tuple[str, int]]]] = {
    # What happened, what the operator states; by the purpose the verdict on orders-1, and the exit code.
    "unregistered": (
        lambda node: append_metadata_record(node, MetadataRecordType.UNREGISTER_BROKER, UNREGISTERED, 0),
        {},
        {UPLOAD: ("REJECTED(R3)", 3)},
    ),
    # A broker takes 0 for a high watermark that is not there (``LazyOffsetCheckpointMap.fetch``).
    "no high watermark": (removed(MARKS), {}, {UPLOAD: ("TRUSTED_BELOW(0)", 1), Purpose.BOOTSTRAP: ("TRUSTED_BELOW(0)", 1)}),
    "damaged high watermarks": (written(MARKS, "9\n9\n"), {}, {UPLOAD: ("TRUSTED_BELOW(0)", 1)}),
    "negative high watermark": (negative_mark, {}, {UPLOAD: ("TRUSTED_BELOW(0)", 1)}),
    "cut, without a high watermark": (cut_and_unmarked, {}, dict.fromkeys(Purpose, ("REJECTED(R13)", 3))),
    # The log may be that of a topic that was deleted and made again (``LogManager.isStrayReplica``).
    "no topic id": (removed("orders-1/partition.metadata"), {}, dict.fromkeys((REBUILD, UPLOAD), ("REJECTED(R5)", 3))),
    "a segment is missing": (removed(f"orders-1/{144:020d}.log"), {}, {UPLOAD: ("TRUSTED_BELOW(144)", 1)}),
    "no meta.properties": (removed("meta.properties"), {"i_am_the_leader": True}, {UPLOAD: ("REJECTED(R2)", 3)}),
    "meta.properties is empty": (written("meta.properties", ""), {"i_am_the_leader": True}, {UPLOAD: ("REJECTED(R2)", 3)}),
    "meta.properties names nothing": (
        written("meta.properties", "\0garbage"),
        {"i_am_the_leader": True},
        {UPLOAD: ("REJECTED(R2)", 3)},
    ),
    # The broker that registered writes its epoch into the marker (3.9) and a directory.id (3.7): these files are older.
    "empty marker": (written(".kafka_cleanshutdown", ""), {}, {REBUILD: ("REJECTED(R10)", 3)}),
    "damaged marker": (written(".kafka_cleanshutdown", "\0garbage"), {}, {REBUILD: ("REJECTED(R10)", 3)}),
    "marker without an epoch": (written(".kafka_cleanshutdown", "{}"), {}, {REBUILD: ("REJECTED(R10)", 3)}),
    "stopped before it had registered": (
        written(".kafka_cleanshutdown", '{"version":0,"brokerEpoch":-1}'),
        {},
        {REBUILD: ("TRUSTED", 0)},
    ),
    "no directory id": (no_directory_id, {}, {REBUILD: ("REJECTED(R4)", 3)}),
    # Of a live broker --broker-epoch takes the place of the marker: rolled segments below the high watermark are trusted.
    "live": (break_marker, {"broker_epoch": 15}, {REBUILD: ("TRUSTED_BELOW(322)", 0)}),
    "live, in another epoch": (break_marker, {"broker_epoch": 14}, {REBUILD: ("REJECTED(R10)", 3)}),
    "live, with a marker": (
        written(".kafka_cleanshutdown", '{"version":0,"brokerEpoch":-1}'),
        {"broker_epoch": 15},
        {UPLOAD: ("REJECTED(R10)", 3)},
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(node: Path, name: str) -> None:
    change, stated, expected = VERDICTS[name]
    change(node)
    for purpose, (verdict, code) in expected.items():
        result = check(node, purpose=purpose, **stated)
        found = verdicts(result)["orders-1"]
        assert (str(found), exit_code_of(result.findings)) == (verdict, code)
        assert (SourceRule.R11 in found.unknown_rules) is ("high watermark" in name and purpose is not REBUILD)
        assert ("log-gap" in {each.code for each in result.findings}) is (name == "a segment is missing")


def cut_metadata(node: Path, end_offset: int) -> None:
    """The metadata log as it was when it ended there, without the checkpoints that were made later."""
    (log,) = (node / "__cluster_metadata-0").glob("*.log")
    data, position = log.read_bytes(), 0
    while position < len(data) and int.from_bytes(data[position : position + 8]) < end_offset:
        position += 12 + int.from_bytes(data[position + 8 : position + 12])
    log.write_bytes(data[:position])


def older_by_its_checkpoint(node: Path) -> None:
    cut_metadata(node, 300)


def older_by_the_marker(node: Path) -> None:
    """No record registers a broker with this epoch."""
    (node / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":17}')


def older_by_the_clock(node: Path) -> None:
    """No epoch shows it: the leader is still the first one."""
    cut_metadata(node, 145)
    for path in (node / "__cluster_metadata-0").glob("*.checkpoint"):
        path.unlink()
    for path in node.glob("*-*/leader-epoch-checkpoint"):
        if path.parent.name != "__cluster_metadata-0":
            path.write_text("0\n1\n0 0\n")


@pytest.mark.parametrize("makes_older", [older_by_its_checkpoint, older_by_the_marker, older_by_the_clock])
@pytest.mark.parametrize("purpose", [Purpose.REBUILD, Purpose.UPLOAD])
def test_a_metadata_log_that_is_older_than_the_replicas(
    node: Path, makes_older: Callable[[Path], object], purpose: Purpose
) -> None:
    """It says nothing of what they are now: no rule of the cluster passes, and none rejects."""
    makes_older(node)
    result = check(node, purpose=purpose)
    for name, verdict in verdicts(result).items():
        assert not verdict.is_rejected, name
        assert {SourceRule.R3, SourceRule.R4, SourceRule.R5, SourceRule.R6, SourceRule.R7, SourceRule.R8} <= set(
            verdict.unknown_rules
        ), name
        assert verdict.outcome is VerdictOutcome.UNKNOWN, name
    assert [each.code for each in result.findings].count("source-metadata-older") == 1
    assert exit_code_of(result.findings) == 1


def test_a_producer_whose_clock_is_ahead_makes_no_metadata_log_older(node: Path) -> None:
    """Its batches were written no later than their file was changed."""
    last_ms = 1_795_265_891_041  # of the metadata log's last record
    segment = max((node / "orders-1").glob("*.log"))
    data = bytearray(segment.read_bytes())
    position = 0
    while position + 61 <= len(data):
        data[position + 35 : position + 43] = (last_ms + 3_600_000).to_bytes(8)
        size = 12 + int.from_bytes(data[position + 8 : position + 12])
        crc = crc32c.crc32c(bytes(data[position + 21 : position + size]))
        data[position + 17 : position + 21] = crc.to_bytes(4)
        position += size
    segment.write_bytes(data)
    os.utime(segment, ns=((last_ms - 3000) * 1_000_000,) * 2)
    assert str(verdicts(check(node))["orders-1"]) == "TRUSTED"
    os.utime(segment, ns=((last_ms + 60_000) * 1_000_000,) * 2)
    assert str(verdicts(check(node))["orders-1"]) == "UNKNOWN(R3)", "it was written after the last record"


def test_no_line_above_what_was_replayed(node: Path) -> None:
    """A transaction of orders-0 is open from 496 on, below the high watermark 533; then a segment below it is cut."""
    assert verdicts(check(node, purpose=UPLOAD))["orders-0"].trusted_below == 496
    cut(node / "orders-0" / f"{411:020d}.log", 100)
    result = check(node, purpose=UPLOAD)
    assert (verdicts(result)["orders-0"].trusted_below or 0) <= 411
    assert exit_code_of(result.findings) != 0


def test_an_old_copy_without_its_marker_is_not_known(tmp_path: Path) -> None:
    """Its own metadata log has an earlier registration; that of a broker that was only killed has the same one."""
    old = Path(shutil.copytree(CLUSTER / "old/node3-clean-stopped", tmp_path / "old"))
    (old / ".kafka_cleanshutdown").unlink()
    verdict = verdicts(check(old, metadata=CLUSTER / "node1"))["orders-1"]
    assert (str(verdict), verdict.unknown_rules) == ("UNKNOWN(R10)", (SourceRule.R10,))
    assert "has its epoch 10, the registration 233: it may be an old copy" in verdict.reason
    shutil.rmtree(old / "__cluster_metadata-0")
    assert verdicts(check(old, metadata=CLUSTER / "node1"))["orders-1"].unknown_rules == (SourceRule.R10,)


def test_a_sibling_without_meta_properties_counts_as_one(node: Path, tmp_path: Path) -> None:
    """For an upload each log directory of the broker must have the marker: one whose ids are lost may be another of them."""
    other = Path(shutil.copytree(node, tmp_path / "other", ignore=shutil.ignore_patterns("__cluster_metadata-0", "orders-*")))
    (other / ".kafka_cleanshutdown").unlink()
    (other / "meta.properties").unlink()
    found = verdicts(check(node, other, purpose=Purpose.UPLOAD))["orders-1"]
    assert (str(found), found.rule) == ("TRUSTED_BELOW(322)", SourceRule.R9)


def test_only_the_log_of_the_only_voter_is_proven_to_its_end(tmp_path: Path) -> None:
    """Node 2 was killed, and its copy of the log ends eight records before that of node 1, which is the only voter."""
    place = FIXTURES / "follower-lost-state"
    bare = Path(shutil.copytree(place / "node1", tmp_path / "bare", ignore=shutil.ignore_patterns("meta.properties")))
    proofs = {}
    for name, directory in (("node1", place / "node1"), ("node2", place / "node2"), ("bare", bare)):
        (proofs[name],) = {(each.metadata.read.proven_below, each.metadata.read.proof) for each in check(directory).replicas}
    assert proofs["node1"] == (136, "proven committed to its end: its quorum has one voter")
    assert proofs["node2"] == (0, "not proven committed: no checkpoint, and it is not the log of the only voter, node 1")
    assert proofs["bare"] == proofs["node2"], "a missing meta.properties raises no trust"


def test_voters_prove_what_a_verdict_rests_on() -> None:
    """All voters hold the whole log of node 1. Another voter has a later epoch than the log of a node that was killed."""
    logs = tuple(str(CLUSTER / node) for node in ("node2", "node3"))
    result = check(CLUSTER / "node1", purpose=Purpose.UPLOAD, voters=logs)
    assert exit_code_of(result.findings) == 0
    (asked,) = {id(each.metadata.read): each.metadata.read for each in result.replicas}.values()
    assert asked is not None
    assert (asked.proven_below, asked.proof) == (348, "proven committed below 348, its end")
    killed = check(CLUSTER / "old/node2-killed", purpose=Purpose.UPLOAD, voters=logs[1:], accept_own_log=True)
    found = verdicts(killed)
    assert SourceRule.R7 in found["orders-1"].unknown_rules
    assert "are not proven: proven committed below 76" in found["orders-1"].evidence_of(SourceRule.R7)
    assert found["single-0"].unknown_rules == (), "what the log says of it has not changed since the checkpoint"
    assert exit_code_of(killed.findings) == 1


def test_a_stray_directory_has_no_line_in_the_checkpoints() -> None:
    """They go by topic and partition: that of ``reborn`` is of the topic that was made again."""
    found = {os.path.basename(each.log.path): each.log for each in check(CLUSTER / "node3").replicas}
    stray = found["reborn-0.67ad66c758e34020ac6f5b6f98f1beff-stray"]
    assert (stray.high_watermark, stray.recovery_point, found["reborn-0"].high_watermark) == (None, None, 122)
