"""Metadata logs that lost bytes: trust never rises when bytes disappear.

A table of faults is next to a table of healthy forms, and the counts of both are asserted. What is right is the verdict with the whole log.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from log_dirs import EMPTY_SNAPSHOT, batch_positions, snapshot_name
from manifests import CLUSTER, FIXTURES
from metadata_dirs import BUNDLED, DIRECTORY, newest_segment, torn

from formats.partition.file_names import DirectoryForm
from snaprebuild.cluster.metadata.log import open_metadata_log
from snaprebuild.cluster.metadata.log_end import log_end_evidence
from snaprebuild.cluster.quorum.check import check_quorum
from snaprebuild.cluster.quorum.rules import QuorumRule
from snaprebuild.cluster.rule_result import Grade
from snaprebuild.cluster.source_check.evidence_collector import SourceRequest, is_judged
from snaprebuild.cluster.source_check.evidence_reader import log_evidence
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.cluster.source_check.source_verdicts import ReadLogs, SourceReplica, judge_sources
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome
from snaprebuild.storage.log_dir import find_partitions

NODES = {
    **{f"node{number}": CLUSTER / f"node{number}" for number in (1, 2, 3)},
    "clean-stopped": CLUSTER / "old" / "node3-clean-stopped",
    "follower": FIXTURES / "follower-lost-state" / "node2",
}
"""Nodes that stopped cleanly, with replicas of which some may leave the disk and some may not."""


def trust(verdict: SourceVerdict) -> float:
    """How much may leave a replica: 0 for nothing, else the offset below which it is trusted."""
    if verdict.outcome is VerdictOutcome.TRUSTED:
        return float("inf")
    return float(verdict.trusted_below or 0) if verdict.outcome is VerdictOutcome.TRUSTED_BELOW else 0.0


class Judged:
    """The replicas of a log directory, whose own files are read once: only the metadata log changes."""

    def __init__(self, node: Path) -> None:
        (found,) = [each for each in find_partitions([str(node)]).log_dirs if each.state.path == str(node)]
        self.state = found.state
        plain = (each for each in found.partitions if is_judged(each) and each.name.form is DirectoryForm.PLAIN)
        self.logs = [log_evidence(each, found.state) for each in plain]

    def verdicts(self, metadata: Path | None = None) -> dict[str, SourceVerdict]:
        """The verdicts for an upload."""
        logs = MetadataLogs(None if metadata is None else str(metadata))
        known = {log.path: log for log in self.logs}
        replicas = [SourceReplica(path, f"{log.topic}-{log.partition}", self.state) for path, log in known.items()]
        request = SourceRequest(Purpose.UPLOAD, logs, [self.state])
        judged = judge_sources(request, replicas, ReadLogs(lambda replica: known[replica.path])).judged
        return {each.replica.path: each.verdict for each in judged}


def copy(name: str, to: Path) -> Path:
    return Path(shutil.copytree(NODES[name], to / name))


@pytest.mark.parametrize("named", [False, True], ids=["own", "named"])
@pytest.mark.parametrize("name", NODES)
def test_trust_never_rises_when_the_metadata_log_is_cut(name: str, named: bool, tmp_path: Path) -> None:
    """At the end of a batch, inside one, and in its last byte; every cut is noticed, as the snapshot of the clean stop shows it."""
    node = copy(name, tmp_path)
    place = Path(shutil.copytree(node, tmp_path / "elsewhere")) if named else node
    judged, log = Judged(node), newest_segment(place)
    data, metadata = log.read_bytes(), place if named else None
    whole = judged.verdicts(metadata)
    last, end = batch_positions(log)[-2:]
    for size in (batch_positions(log)[3], last, (last + end) // 2, end, len(data) - 1):
        log.write_bytes(data[:size])
        for replica, verdict in judged.verdicts(metadata).items():
            assert trust(verdict) <= trust(whole[replica]), (replica, size)
            assert trust(verdict) == 0, (replica, size)
    log.write_bytes(data)
    assert judged.verdicts(metadata) == whole


@pytest.mark.full
def test_trust_never_rises_at_any_batch_or_byte() -> None:
    """At each batch end, and at every third of the last 120 bytes."""
    cuts = losses = 0
    for name in NODES:
        with TemporaryDirectory() as place:
            node = copy(name, Path(place))
            judged, log = Judged(node), newest_segment(node)
            data, whole = log.read_bytes(), judged.verdicts()
            for size in sorted({*batch_positions(log)[1::4], *range(len(data) - 120, len(data), 3)}):
                log.write_bytes(data[:size])
                found = judged.verdicts()
                assert all(trust(verdict) <= trust(whole[replica]) for replica, verdict in found.items()), (name, size)
                losses += sum(trust(verdict) < trust(whole[replica]) for replica, verdict in found.items())
                cuts += 1
    assert cuts > 300
    assert losses > 600, "replicas that were trusted with the whole log"


# ---------------------------------------------------------------------------------------------------------------- cluster check

Change = Callable[[Path], object]
"""A change of a log directory."""


def deleted(node: Path) -> None:
    newest_segment(node).unlink()


def emptied(node: Path) -> None:
    os.truncate(newest_segment(node), 0)


def cut_at_a_batch(count: int) -> Change:
    return lambda node: os.truncate(log := newest_segment(node), batch_positions(log)[-count])


def without(*patterns: str) -> Change:
    def remove(node: Path) -> None:
        for pattern in patterns:
            for path in node.glob(pattern):
                path.unlink()

    return remove


def both(*changes: Change) -> Change:
    def change(node: Path) -> None:
        for each in changes:
            each(node)

    return change


SNAPSHOTS = without(f"{DIRECTORY}/*.snapshot")
INDEXES = without(f"{DIRECTORY}/*index")


def closed_at_the_last_whole_batch(node: Path) -> None:
    """A snapshot is where the log ends, but for the batch that is not whole."""
    log = newest_segment(node)
    offset = int.from_bytes(log.read_bytes()[batch_positions(log)[-1] :][:8], "big")
    (node / DIRECTORY / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)


FAULTS: dict[str, Change] = {
    "torn, with a snapshot below": both(
        closed_at_the_last_whole_batch, torn, without(f"{DIRECTORY}/{snapshot_name(348)}"), INDEXES
    ),
    "deleted": deleted,
    "emptied": emptied,
    "cut at a batch": cut_at_a_batch(1),
    "cut at a batch further below": cut_at_a_batch(20),
    "torn": torn,
    "cut at a batch, without snapshots": both(cut_at_a_batch(3), SNAPSHOTS),
    "cut at a batch, without snapshots and indexes": both(cut_at_a_batch(3), SNAPSHOTS, INDEXES),
    "torn, without snapshots and indexes": both(torn, SNAPSHOTS, INDEXES),
    "deleted, without snapshots and indexes": both(deleted, SNAPSHOTS, INDEXES),
    "cut at a batch, without a marker": both(cut_at_a_batch(2), without(".kafka_cleanshutdown")),
    "cut at a batch, without a marker and snapshots": both(cut_at_a_batch(2), without(".kafka_cleanshutdown"), SNAPSHOTS),
}
HEALTHY: dict[str, Change] = {
    "whole": both(),
    "without indexes, which a start makes anew": INDEXES,
    "without a marker": without(".kafka_cleanshutdown"),
    "of a node that runs, torn while it was copied": both(torn, without(".kafka_cleanshutdown"), SNAPSHOTS, INDEXES),
    "of a node that was killed": both(cut_at_a_batch(2), without(".kafka_cleanshutdown"), SNAPSHOTS, INDEXES),
    "without partition.metadata, which a start writes anew": without(f"{DIRECTORY}/partition.metadata"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_voter_that_lost_the_end_of_its_log_is_found(fault: str, tmp_path: Path) -> None:
    """By each directory alone: exit code 1 or higher, and by its log no replica may leave the disk that could not before."""
    for name in ("node1", "node3"):
        node = copy(name, tmp_path)
        FAULTS[fault](node)
        result = check_quorum([str(node)])
        assert exit_code_of(result.findings) >= 1, name
        assert QuorumRule.K17 in {each.rule for each in result.nodes[0].results if each.grade not in (None, Grade.INFO)}, name
        found = Judged(node).verdicts()
        assert {trust(verdict) for verdict in found.values()} == {0.0}, name


@pytest.mark.parametrize("form", HEALTHY)
def test_healthy_forms_raise_no_alarm(form: str, tmp_path: Path) -> None:
    for name in ("node1", "node2", "node3"):
        node = copy(name, tmp_path)
        HEALTHY[form](node)
        result = check_quorum([str(node)])
        assert exit_code_of(result.findings) == 0, [each.message for each in result.findings if each.severity]


def test_the_tables_hold_faults_and_healthy_forms() -> None:
    assert (len(FAULTS), len(HEALTHY), len(BUNDLED)) == (12, 6, 9)
    for name, place in BUNDLED.items():
        assert exit_code_of(check_quorum([str(place)]).findings) == 0, name


def test_the_bundled_nodes_that_stopped_cleanly_have_a_snapshot_at_the_end() -> None:
    """Kafka wrote the snapshot that K17 expects after a clean stop in every directory."""
    for node in NODES.values():
        assert (node / ".kafka_cleanshutdown").exists()
        end = check_quorum([str(node)]).nodes[0].node.facts.end_offset
        assert (node / DIRECTORY / snapshot_name(end)).exists(), node


# ------------------------------------------------------------------------------------------------------------ each kind of evidence

EPOCHS = "0\n1\n1 0\n"
EVIDENCE: dict[str, tuple[Change, str]] = {
    # What is left besides the log, which ends at 396 or at 357, and what it says.
    "a snapshot": (both(INDEXES, lambda node: (node / DIRECTORY / "leader-epoch-checkpoint").write_text(EPOCHS)), "lost"),
    "the leader epochs": (both(INDEXES, SNAPSHOTS), "ahead"),
    "an index without its segment": (
        both(SNAPSHOTS, deleted, lambda node: (node / DIRECTORY / "leader-epoch-checkpoint").write_text(EPOCHS)),
        "ahead",
    ),
    "a checkpoint": (
        both(INDEXES, SNAPSHOTS, lambda node: (node / DIRECTORY / "leader-epoch-checkpoint").write_text(EPOCHS)),
        "below_checkpoint",
    ),
}


@pytest.mark.parametrize("kind", EVIDENCE)
def test_each_kind_of_evidence_is_enough(kind: str, tmp_path: Path) -> None:
    """The node was killed: without a marker nothing but this shows the loss."""
    node = Path(shutil.copytree(BUNDLED["kraft-metadata"], tmp_path / "node"))
    log = newest_segment(node)
    offsets = [int.from_bytes(log.read_bytes()[at : at + 8], "big") for at in batch_positions(log)]
    os.truncate(log, batch_positions(log)[offsets.index(396)])
    change, field = EVIDENCE[kind]
    both(change, without(".kafka_cleanshutdown"))(node)
    if kind != "a checkpoint":
        without(f"{DIRECTORY}/*-000000000[23].checkpoint")(node)
    listed = open_metadata_log(str(node))
    end = log_end_evidence(listed, listed.log_end_offset(), is_torn=False)
    shown = {name for name in ("below_checkpoint", "lost", "ahead") if getattr(end, name) is not None}
    assert shown == {field}
    assert end.reason(was_stopped_cleanly=False) is not None
