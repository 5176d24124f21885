"""Verdicts on changed copies of a real replica: one for each rule, and none on the unchanged one."""

import shutil
from pathlib import Path

import pytest
from manifests import CLUSTER
from plans import make_plan
from rule_marks import HOLDS, REJECTS, UNKNOWN, WARNS, Mark, mark_of
from snapshot_by_grammar import build_snapshot
from source_verdicts import (
    NOW_MS,
    Break,
    break_end,
    break_marker,
    check,
    ids_changed,
    meta,
    partition_changed,
    renamed,
    verdicts,
    without_result,
    written,
)

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.cluster.source_check.verdict import SourceRule, SourceVerdict
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome

pytestmark = pytest.mark.usefixtures("each_image_once")


def break_high_watermark(node: Path) -> None:
    path = node / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("orders 1 336", "orders 1 300"))


STRAY = f"orders-1.{'ab' * 16}-stray"
OTHER_TOPIC = written("orders-1/partition.metadata", "version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA")
BROKEN: dict[str, tuple[SourceRule, str, Break]] = {
    "form of the directory": (SourceRule.R1, STRAY, renamed("orders-1", STRAY)),
    "compaction": (SourceRule.R1, "orders-1", written(f"orders-1/{83:020d}.log.swap", "")),
    "no node id": (SourceRule.R2, "orders-1", ids_changed(node_id="one")),
    "another cluster": (SourceRule.R2, "orders-1", ids_changed(cluster_id="AAAAAAAAAAAAAAAAAAAAAA")),
    "another node": (SourceRule.R3, "orders-1", ids_changed(node_id="9")),
    "another disk": (SourceRule.R4, "orders-1", ids_changed(directory_id="ab9ZJ6AMRJSTUIzVRVFYag")),
    "another topic of the name": (SourceRule.R5, "orders-1", OTHER_TOPIC),
    "a topic that is deleted": (SourceRule.R5, "gone-0", renamed("orders-1", "gone-0")),
    "no partition of the topic": (SourceRule.R6, "orders-7", renamed("orders-1", "orders-7")),
    "a directory that is lost": (SourceRule.R6, "orders-1", partition_changed(directories=[bytes(15) + b"\2"] * 3)),
    "not in sync": (SourceRule.R7, "orders-1", partition_changed(eligibleLeaderReplicas=[2])),
    "recovering": (SourceRule.R8, "orders-1", partition_changed(leaderRecoveryState=1)),
    "an older start": (SourceRule.R10, "orders-1", written(".kafka_cleanshutdown", '{"version":0,"brokerEpoch":14}')),
    "epochs without order": (SourceRule.R12, "orders-1", written("orders-1/leader-epoch-checkpoint", "0\n2\n1 0\n0 292\n")),
    "a log that was cut": (SourceRule.R13, "orders-1", break_end),
    "a log start above the end": (SourceRule.R13, "orders-1", written("log-start-offset-checkpoint", "0\n1\norders 1 337\n")),
}
"""The rule that each change breaks, and the replica whose verdict it is."""
LIMITING: dict[str, tuple[SourceRule, Break, str, str]] = {
    "no marker": (SourceRule.R9, break_marker, "TRUSTED_BELOW(322)", "TRUSTED_BELOW(322)"),
    "a low high watermark": (SourceRule.R11, break_high_watermark, "TRUSTED", "TRUSTED_BELOW(300)"),
}
"""These two never reject: they say how far."""


def test_the_table_has_every_rule() -> None:
    assert {rule for rule, *_ in (*BROKEN.values(), *LIMITING.values())} == set(SourceRule)


def judged(node: Path, name: str, purpose: Purpose = Purpose.UPLOAD) -> SourceVerdict:
    """With node 1's own log where that was changed, else with that of the bundled node, which is in a directory of the right ids."""
    (log,) = (node / "__cluster_metadata-0").glob("*.log")
    (bundled,) = (CLUSTER / "node1" / "__cluster_metadata-0").glob("*.log")
    is_changed = log.stat().st_size != bundled.stat().st_size
    return verdicts(check(node, purpose=purpose, metadata=node if is_changed else CLUSTER / "node1"))[name]


@pytest.mark.parametrize(("rule", "name", "breaks"), BROKEN.values(), ids=BROKEN)
def test_each_rule_is_tripped_alone(node: Path, rule: SourceRule, name: str, breaks: Break) -> None:
    breaks(node)
    verdict = judged(node, name)
    assert (verdict.outcome, verdict.rule, str(verdict)) == (VerdictOutcome.REJECTED, rule, f"REJECTED({rule.name})")
    tripped = [each.rule for each in verdict.results if mark_of(each) in (REJECTS, WARNS)]
    assert tripped == [rule]
    others = {
        each: verdict
        for each, verdict in verdicts(check(node, purpose=Purpose.UPLOAD, metadata=CLUSTER / "node1")).items()
        if each != name
    }
    assert (rule in (SourceRule.R2, SourceRule.R3, SourceRule.R4, SourceRule.R10)) == all(
        each.is_rejected for each in others.values()
    ), "the others of the broker"


@pytest.mark.parametrize(("rule", "breaks", "rebuild", "upload"), LIMITING.values(), ids=LIMITING)
def test_each_limit_is_drawn_alone(node: Path, rule: SourceRule, breaks: Break, rebuild: str, upload: str) -> None:
    """The log of orders-1 has segments at 235 and 322, and ends at 336."""
    breaks(node)
    assert [str(judged(node, "orders-1", purpose)) for purpose in (Purpose.REBUILD, Purpose.UPLOAD)] == [rebuild, upload]
    verdict = judged(node, "orders-1")
    assert verdict.rule is rule
    assert [each.rule for each in verdict.results if mark_of(each) in (REJECTS, WARNS)] == [rule] * (rule is SourceRule.R9)


@pytest.mark.parametrize("purpose", Purpose)
def test_a_healthy_directory_trips_none(purpose: Purpose) -> None:
    result = check(CLUSTER / "node1", purpose=purpose)
    assert len(result.replicas) == 7
    for each in result.replicas:
        assert {mark_of(rule) for rule in each.verdict.results} == {HOLDS}, each.log.path
        assert not each.verdict.is_rejected
    assert [each for each in result.findings if each.severity] == []


def test_a_marker_that_is_newer_than_the_metadata_log(node: Path) -> None:
    """An image from before the broker registered says nothing of it: it is not stale, the image is."""
    (node / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":348}')
    verdict = judged(node, "orders-1")
    assert not verdict.is_rejected
    assert without_result(verdict) == (
        SourceRule.R3,
        SourceRule.R4,
        SourceRule.R5,
        SourceRule.R6,
        SourceRule.R7,
        SourceRule.R8,
        SourceRule.R10,
    )
    assert "before the broker registered with epoch 348" in verdict.results[2].evidence


def test_two_log_directories_of_one_broker(node: Path, tmp_path: Path) -> None:
    """Two directories of one configuration cannot be of two clusters. If somebody names two brokers of two clusters, that says
    nothing of them."""
    other = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "other", ignore=shutil.ignore_patterns("__cluster_metadata-0")))
    meta(other, directory_id="ab9ZJ6AMRJSTUIzVRVFYag")
    (other / ".kafka_cleanshutdown").unlink()
    for path in other.glob("orders-[12]"):
        shutil.rmtree(path)
    shutil.rmtree(node / "orders-0")
    both = (node, other)
    assert verdicts(check(*both, purpose=Purpose.UPLOAD))["orders-1"].rule is SourceRule.R11, (
        "a disk that is not registered is none of its"
    )
    meta(other, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={node},{other}\n")
    found = verdicts(check(server_properties=str(properties)))
    assert [str(found[name]) for name in ("orders-0", "orders-1")] == ["REJECTED(R2)"] * 2
    assert "cluster.id is" in found["orders-1"].reason
    for question in (check(node), check(*both)):
        assert str(verdicts(question)["orders-1"]) == "TRUSTED"
    for path in (*both, tmp_path):
        planned = make_plan(RebuildRequest(paths=(str(path),), out=None, boundaries="all"))
        found_by_plan = [each.verdict for each in planned.partitions if each.verdict is not None]
        assert len(found_by_plan) >= 4
        assert not any(each.is_rejected for each in found_by_plan), path
    planned = make_plan(RebuildRequest(paths=(), server_properties=str(properties), boundaries="all"))
    assert {str(each.verdict) for each in planned.partitions if each.verdict is not None} == {"REJECTED(R2)"}


def test_the_metadata_log_of_a_broker_may_lie_outside_of_its_log_dirs(node: Path, tmp_path: Path) -> None:
    """``metadata.log.dir``: it is asked by default where the configuration is given, by ``plan`` as by ``cluster source``."""
    (tmp_path / "metadata").mkdir()
    (node / "__cluster_metadata-0").rename(tmp_path / "metadata" / "__cluster_metadata-0")
    OTHER_TOPIC(node)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={node}\nmetadata.log.dir={tmp_path / 'metadata'}\n")
    found = verdicts(check(node))["orders-1"]
    assert str(found) == "UNKNOWN(R3)", "a KRaft node has a metadata log"
    assert f"it is in {tmp_path / 'metadata'}" not in found.reason, "there is no meta.properties"
    result = check(server_properties=str(properties))
    assert str(verdicts(result)["orders-1"]) == "REJECTED(R5)"
    assert [each.code for each in result.findings].count("source-metadata-dir") == 1
    (asked,) = {id(each.metadata.read): each.metadata.read for each in result.replicas}.values()
    assert asked is not None
    assert (asked.path, asked.is_own) == (str(tmp_path / "metadata" / "__cluster_metadata-0"), True)
    for paths in ((), (str(node),)):
        planned = make_plan(RebuildRequest(paths=paths, server_properties=str(properties), boundaries="all"))
        (orders,) = [each for each in planned.partitions if each.source.directory.topic_partition == "orders-1"]
        assert str(orders.verdict) == "REJECTED(R5)"
        assert [each.code for each in planned.findings].count("source-metadata-dir") == 1


@pytest.mark.parametrize("purpose", [Purpose.REBUILD, Purpose.UPLOAD])
def test_a_leader_epoch_above_the_clusters(node: Path, purpose: Purpose) -> None:
    """The metadata log is older than the replica, and so it says nothing of any replica of that broker, also not of one that it misses."""
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n8 292\n")
    (node / "orders-0").rename(node / "gone-0")
    result = check(node, purpose=purpose, metadata=CLUSTER / "node1")
    for each, verdict in verdicts(result).items():
        assert verdict.outcome is VerdictOutcome.UNKNOWN or verdict.trusted_below == 0, each
        assert verdict.unknown_rules[:6] == (
            SourceRule.R3,
            SourceRule.R4,
            SourceRule.R5,
            SourceRule.R6,
            SourceRule.R7,
            SourceRule.R8,
        )
        assert "leader epoch 8: a later one is needed" in verdict.evidence_of(SourceRule.R5)
    (older,) = [each for each in result.findings if each.code == "source-metadata-older"]
    assert "/orders-1 has leader epoch 8" in older.message
    assert exit_code_of(result.findings) == 1


def test_after_an_unclean_stop_the_own_metadata_log_may_have_lost_its_end(node: Path) -> None:
    """A broker does not flush it: a topic or partition that is missing there is not known to be gone, unless another log shows it."""
    (node / "orders-1").rename(node / "orders-7")
    (node / "orders-2").rename(node / "gone-0")
    rules = {"orders-7": SourceRule.R6, "gone-0": SourceRule.R5}
    assert {name: verdicts(check(node))[name].rule for name in rules} == rules
    (node / ".kafka_cleanshutdown").unlink()
    own, other = verdicts(check(node)), verdicts(check(node, metadata=CLUSTER / "node1"))
    for name, rule in rules.items():
        assert not own[name].is_rejected, name
        assert rule in without_result(own[name]), name
        assert str(other[name]) == f"REJECTED({rule.name})"


# ---------------------------------------------------------------------------------------------------------------- broker epochs


@pytest.mark.parametrize(
    ("epoch", "metadata", "state", "evidence"),
    [
        (15, "node1", HOLDS, "has the broker epoch of the registration, 15"),
        # Node 2 registered at 16, and again at 169 and 273; node 3 at 10, 119 and 233.
        (16, "node1", REJECTS, "with which node 2 registered: the disk is that broker's"),
        (119, "node1", REJECTS, "with which node 3 registered: the disk is that broker's"),
        (169, "node1", REJECTS, "with which node 2 registered: the disk is that broker's"),
        (273, "node2", REJECTS, "with which node 2 registered: the disk is that broker's"),
        (233, "node2", REJECTS, "with which node 3 registered: the disk is that broker's"),
        # The log of node 2 begins at 234.
        (119, "node2", UNKNOWN, "is below the start of the log, so whose it is is not known"),
        (300, "node2", UNKNOWN, "with which no broker registered there"),
        (10, "node2", REJECTS, "the registration 15: the broker registered again since"),
    ],
)
def test_the_epoch_of_the_marker_is_an_offset(node: Path, epoch: int, metadata: str, state: Mark, evidence: str) -> None:
    """The record there says whose disk it is; where it is trimmed away, that is unknown, and never another broker."""
    (node / ".kafka_cleanshutdown").write_text(f'{{"version":0,"brokerEpoch":{epoch}}}')
    for place in (CLUSTER / metadata, node) if metadata == "node1" else (CLUSTER / metadata,):
        verdict = verdicts(check(node, metadata=place))["orders-1"]
        (found,) = [each for each in verdict.results if each.rule is SourceRule.R10]
        assert (mark_of(found), evidence in found.evidence) == (state, True), found.evidence
        assert verdict.is_rejected == (state == REJECTS)


# ---------------------------------------------------------------------------------------------------------------- no metadata log

KRAFT, ZOOKEEPER = "version=1\nnode.id=1\ncluster.id=Zx4kQm3BTyGd1rPq7sVwYA\n", "version=0\nbroker.id=1\n"
DISKS: dict[str, tuple[str | None, str, str]] = {
    # By meta.properties: the verdicts on a rebuild and on an upload by the leader's word.
    "KRaft": (KRAFT, "UNKNOWN(R3)", "UNKNOWN(R3)"),
    "KRaft, version 2": ("version=2\nnode.id=1\ndirectory.id=vbgXJ_mX3w2WzAJjsPWbwQ\n", "UNKNOWN(R3)", "UNKNOWN(R3)"),
    "a node id without a version": ("node.id=1\nbroker.id=1\n", "UNKNOWN(R3)", "UNKNOWN(R3)"),
    "ZooKeeper": (ZOOKEEPER, "TRUSTED", "TRUSTED_BELOW(336)"),
    "ZooKeeper, without a version": ("broker.id=1\ncluster.id=c\n", "TRUSTED", "TRUSTED_BELOW(336)"),
    "no file": (None, "UNKNOWN(R2)", "UNKNOWN(R2)"),
    "a file that names nothing": ("", "REJECTED(R2)", "REJECTED(R2)"),
}


@pytest.mark.parametrize("kind", DISKS)
def test_a_disk_without_a_metadata_log(node: Path, kind: str) -> None:
    """Unknown on the disk of a KRaft node, whatever the operator says; not applicable with ZooKeeper."""
    shutil.rmtree(node / "__cluster_metadata-0")
    text, rebuild, upload = DISKS[kind]
    (node / "meta.properties").unlink()
    if text is not None:
        (node / "meta.properties").write_text(text)
    found = verdicts(check(node))["orders-1"], verdicts(check(node, purpose=Purpose.UPLOAD, i_am_the_leader=True))["orders-1"]
    assert tuple(map(str, found)) == (rebuild, upload)
    document = found[1].summary()
    cluster_rules = {"R3", "R4", "R6", "R8", "R10"}
    if "ZooKeeper" in kind:
        assert cluster_rules <= set(document.not_applicable_rules)
        assert document.unknown_rules == ()
    else:
        assert cluster_rules <= set(document.unknown_rules)
        assert not found[1].asserted_by_operator
        assert "--i-am-the-leader is for ZooKeeper" in found[1].evidence_of(SourceRule.R7)
    assert set(document.unknown_rules).isdisjoint(document.not_applicable_rules)


def test_another_disk_of_a_node_names_the_one_with_the_metadata_log(tmp_path: Path) -> None:
    disks = [Path(shutil.copytree(CLUSTER / "node1", tmp_path / name)) for name in ("d1", "d2")]
    shutil.rmtree(disks[1] / "__cluster_metadata-0")
    meta(disks[1], directory_id="ab9ZJ6AMRJSTUIzVRVFYag")
    verdict = verdicts(check(disks[1]))["orders-1"]
    assert (str(verdict), verdict.reason.endswith(f"it is in {disks[0]}")) == ("UNKNOWN(R3)", True), verdict.reason
    planned = make_plan(RebuildRequest(paths=(str(disks[1]),), out=None, boundaries="all"))
    assert exit_code_of(planned.findings) == 0, "a rebuild describes local bytes, and the node has its log elsewhere"


@pytest.mark.parametrize("named", [False, True], ids=["own", "named"])
def test_after_an_unclean_stop_the_own_log_alone_shows_no_later_registration(node: Path, named: bool) -> None:
    """For what leaves the disk; ``--accept-own-log`` answers R10 and no other rule, ``--i-am-the-leader`` none."""
    break_marker(node)
    metadata = node if named else None
    upload = {"purpose": Purpose.UPLOAD, "metadata": metadata}
    assert str(verdicts(check(node, metadata=metadata))["orders-1"]) == "TRUSTED_BELOW(322)"
    for word in (False, True):
        verdict = verdicts(check(node, i_am_the_leader=word, **upload))["orders-1"]
        assert (str(verdict), verdict.unknown_rules) == ("UNKNOWN(R10)", (SourceRule.R10,))
    accepted = verdicts(check(node, accept_own_log=True, **upload))["orders-1"]
    assert (str(accepted), len(accepted.asserted_by_operator)) == ("TRUSTED_BELOW(322)", 1)
    partition_changed(eligibleLeaderReplicas=[2])(node)
    assert str(verdicts(check(node, accept_own_log=True, **upload))["orders-1"]) == "REJECTED(R7)"
    assert str(verdicts(check(node, purpose=Purpose.UPLOAD, metadata=CLUSTER / "node3"))["orders-1"]) == "TRUSTED_BELOW(322)"


@pytest.mark.parametrize(("producer_id", "hours", "found"), [(999, 0, False), (1000, 0, True), (5000, 0, True), (5000, 25, False)])
def test_producer_ids_that_the_cluster_has_yet_to_give_out(node: Path, producer_id: int, hours: int, found: bool) -> None:
    """A partition from another cluster; of one that has expired a broker knows nothing any more."""
    newest = max((node / "orders-1").glob("*.snapshot"))
    timestamp = NOW_MS - hours * 3_600_000
    newest.write_bytes(build_snapshot([ProducerEntry(producer_id, 0, 0, 100, 0, timestamp)]))
    next_id = next(iter({id(each.metadata.read): each.metadata.read for each in check(node).replicas}.values()))
    assert next_id is not None
    assert next_id.image.next_producer_id is not None
    shift = next_id.image.next_producer_id - 1000
    newest.write_bytes(build_snapshot([ProducerEntry(producer_id + shift, 0, 0, 100, 0, timestamp)]))
    codes = [each.code for each in check(node).findings if each.path.endswith("orders-1")]
    assert ("producer-id-collision" in codes) is found
