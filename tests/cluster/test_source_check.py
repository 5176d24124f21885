"""Verdicts on real replicas: those of three nodes and their old disks, one broken copy for each rule, and every bundled directory."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import pytest
from cluster_images import remember_images
from log_dirs import cut
from manifests import CLUSTER, FIXTURES
from metadata_logs import append_metadata_record
from plans import make_plan

from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cluster.metadata.log import MetadataLog, MetadataWalk, open_metadata_log
from snaprebuild.cluster.source_check.check import SourceCheck, SourceQuestion, check_sources
from snaprebuild.cluster.source_check.evidence import Purpose
from snaprebuild.cluster.source_check.rules import RuleState
from snaprebuild.cluster.source_check.verdict import Outcome, Rule, SourceVerdict
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.plan.plan_model import Request

MANIFEST: dict[str, Any] = json.loads((CLUSTER / "manifest.json").read_text())
NOW_MS = 1_795_300_000_000
LAST_OFFSET = 347
ORDERS = "TbEpDujbR1a9Y_KYwm3sPQ"

KAFKA_DECIDES = {
    # The manifest rejects it for R8. With one replica RECOVERING never ends (nothing but a change of the ISR ends it), while Kafka
    # elects and serves the replica all the same: node 2 led single-0 from offset 127 on in leader epoch 2, as its own leader epochs
    # have it. So a healthy broker would be rejected for ever once it is stopped. tests/broker/test_source_verdict.py has a real one.
    ("old/node2-replaced-disk", "single-0", 272): ("TRUSTED", "TRUSTED_BELOW(127)")
}


@pytest.fixture(autouse=True)
def each_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of node 1 is asked in nearly every test."""
    remember_images(monkeypatch)


def check(*paths: Path, purpose: Purpose = Purpose.REBUILD, metadata: Path | None = None, **more: Any) -> SourceCheck:
    question = SourceQuestion(
        tuple(map(str, paths)),
        purpose,
        None if metadata is None else str(metadata),
        **{**more, "peers": tuple(more.get("peers", ()))},
    )
    return check_sources(question, NOW_MS, 1)


def verdicts(result: SourceCheck) -> dict[str, SourceVerdict]:
    return {os.path.basename(each.log.path): each.verdict for each in result.replicas}


# ---------------------------------------------------------------------------------------------------------------- three nodes


def expected() -> Iterator[tuple[str, int, str, str, str]]:
    for directory, told in MANIFEST["directories"].items():
        for name, partition in told["partitions"].items():
            for key, at in (
                ("verdict_final_image", LAST_OFFSET),
                ("verdict_image_at_copy", told.get("image_before_its_next_registration_offset")),
            ):
                if key in partition:
                    verdict = partition[key]
                    yield directory, at, name, verdict["local_rebuild"], verdict["upload_source"]


@pytest.mark.parametrize("directory", MANIFEST["directories"])
def test_every_verdict_of_the_manifest(directory: str) -> None:
    wanted = [each for each in expected() if each[0] == directory]
    assert len({name for _, _, name, _, _ in wanted}) >= 7
    for at in {at for _, at, _, _, _ in wanted}:
        found = {
            purpose: verdicts(check(CLUSTER / directory, purpose=purpose, metadata=CLUSTER / "node1", at=at))
            for purpose in (Purpose.REBUILD, Purpose.UPLOAD)
        }
        for _, _, name, rebuild, upload in (each for each in wanted if each[1] == at):
            right = KAFKA_DECIDES.get((directory, name, at), (rebuild, upload))
            assert (str(found[Purpose.REBUILD][name]), str(found[Purpose.UPLOAD][name])) == right, (name, at)


def test_where_kafka_decides_against_the_manifest() -> None:
    """Each exception stands in the manifest as something else, and what it rests on is in the directories."""
    by_place = {(directory, name, at): (rebuild, upload) for directory, at, name, rebuild, upload in expected()}
    for place, right in KAFKA_DECIDES.items():
        assert by_place[place] != right
    single = MANIFEST["directories"]["old/node2-replaced-disk"]["partitions"]["single-0"]
    assert single["leader_epochs"] == [[0, 0], [2, 127]], "it led again after the kill -9"
    assert single["log_end_offset"] == 127
    verdict = verdicts(check(CLUSTER / "old/node2-replaced-disk", metadata=CLUSTER / "node1", at=272))["single-0"]
    (recovery,) = [each for each in verdict.results if each.rule is Rule.R8]
    assert (recovery.state, "one replica" in recovery.ruling.evidence) == (RuleState.WARN, True)


@pytest.mark.parametrize("node", ["node1", "node2", "node3"])
def test_own_metadata_log(node: str) -> None:
    """Without --metadata each broker's own log is asked, and it is said how far that is proven."""
    result = check(CLUSTER / node)
    (asked,) = {id(each.metadata.read): each.metadata.read for each in result.replicas}.values()
    assert asked is not None
    assert (asked.path, asked.is_own, asked.image.offset) == (str(CLUSTER / node / "__cluster_metadata-0"), True, LAST_OFFSET)
    newest = MANIFEST["checkpoint_used_of_node"][node[-1]]
    assert asked.proven_below == int(newest[:20])
    assert all(
        not each.verdict.is_rejected for each in result.replicas if "stray" not in each.log.path and "single" not in each.log.path
    )


# ---------------------------------------------------------------------------------------------------------------- one rule each


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy of node 1, the one that may be a source for everything."""
    return Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node1"))


def meta(node: Path, **changed: str) -> None:
    path = node / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if line.partition("=")[0].replace(".", "_") not in changed]
    path.write_text("\n".join([*lines, *(f"{key.replace('_', '.', 1)}={value}" for key, value in changed.items())]) + "\n")


NO_CHANGE: dict[str, Any] = {
    "isr": None,
    "leader": -2,
    "replicas": None,
    "removingReplicas": None,
    "addingReplicas": None,
    "leaderRecoveryState": -1,
    "directories": None,
    "eligibleLeaderReplicas": None,
    "lastKnownElr": None,
}


Break = Callable[[Path], object]
"""Changes the directory of a broker."""


def renamed(old: str, new: str) -> Break:
    return lambda node: (node / old).rename(node / new)


def written(path: str, text: str) -> Break:
    return lambda node: (node / path).write_text(text)


def ids_changed(**ids: str) -> Break:
    return lambda node: meta(node, **ids)


def partition_changed(offset: int = 348, **fields: Any) -> Break:
    """By a record at the end of the metadata log."""
    record = {**NO_CHANGE, "partitionId": 1, "topicId": uuid_from_text(ORDERS), **fields}
    return lambda node: append_metadata_record(node, MetadataRecordType.PARTITION_CHANGE, record, 2, offset)


def break_high_watermark(node: Path) -> None:
    path = node / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("orders 1 336", "orders 1 300"))


def break_end(node: Path) -> None:
    cut(node / "orders-1" / f"{322:020d}.log", 0)


def break_marker(node: Path) -> None:
    (node / ".kafka_cleanshutdown").unlink()


STRAY = f"orders-1.{'ab' * 16}-stray"
OTHER_TOPIC = written("orders-1/partition.metadata", "version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA")
BROKEN: dict[str, tuple[Rule, str, Break]] = {
    "form of the directory": (Rule.R1, STRAY, renamed("orders-1", STRAY)),
    "compaction": (Rule.R1, "orders-1", written(f"orders-1/{83:020d}.log.swap", "")),
    "no node id": (Rule.R2, "orders-1", ids_changed(node_id="one")),
    "another cluster": (Rule.R2, "orders-1", ids_changed(cluster_id="AAAAAAAAAAAAAAAAAAAAAA")),
    "another node": (Rule.R3, "orders-1", ids_changed(node_id="9")),
    "another disk": (Rule.R4, "orders-1", ids_changed(directory_id="ab9ZJ6AMRJSTUIzVRVFYag")),
    "another topic of the name": (Rule.R5, "orders-1", OTHER_TOPIC),
    "a topic that is deleted": (Rule.R5, "gone-0", renamed("orders-1", "gone-0")),
    "no partition of the topic": (Rule.R6, "orders-7", renamed("orders-1", "orders-7")),
    "a directory that is lost": (Rule.R6, "orders-1", partition_changed(directories=[bytes(15) + b"\2"] * 3)),
    "not in sync": (Rule.R7, "orders-1", partition_changed(eligibleLeaderReplicas=[2])),
    "recovering": (Rule.R8, "orders-1", partition_changed(leaderRecoveryState=1)),
    "an older start": (Rule.R10, "orders-1", written(".kafka_cleanshutdown", '{"version":0,"brokerEpoch":14}')),
    "epochs without order": (Rule.R12, "orders-1", written("orders-1/leader-epoch-checkpoint", "0\n2\n1 0\n0 292\n")),
    "a log that was cut": (Rule.R13, "orders-1", break_end),
    "a log start above the end": (Rule.R13, "orders-1", written("log-start-offset-checkpoint", "0\n1\norders 1 337\n")),
}
"""The rule that each change breaks, and the replica whose verdict it is."""


LIMITING: dict[str, tuple[Rule, Break, str, str]] = {
    "no marker": (Rule.R9, break_marker, "TRUSTED_BELOW(322)", "TRUSTED_BELOW(322)"),
    "a low high watermark": (Rule.R11, break_high_watermark, "TRUSTED", "TRUSTED_BELOW(300)"),
}
"""These two never reject: they say how far."""


def test_the_table_has_every_rule() -> None:
    assert {rule for rule, *_ in (*BROKEN.values(), *LIMITING.values())} == set(Rule)


def judged(node: Path, name: str, purpose: Purpose = Purpose.UPLOAD) -> SourceVerdict:
    """With node 1's own log where that was changed, else with that of the bundled node, which lies in a directory of the right ids."""
    (log,) = (node / "__cluster_metadata-0").glob("*.log")
    (bundled,) = (CLUSTER / "node1" / "__cluster_metadata-0").glob("*.log")
    is_changed = log.stat().st_size != bundled.stat().st_size
    return verdicts(check(node, purpose=purpose, metadata=node if is_changed else CLUSTER / "node1"))[name]


@pytest.mark.parametrize(("rule", "name", "breaks"), BROKEN.values(), ids=BROKEN)
def test_each_rule_is_tripped_alone(node: Path, rule: Rule, name: str, breaks: Break) -> None:
    breaks(node)
    verdict = judged(node, name)
    assert (verdict.outcome, verdict.rule, str(verdict)) == (Outcome.REJECTED, rule, f"REJECTED({rule.name})")
    tripped = [each.rule for each in verdict.results if each.state in (RuleState.FAIL, RuleState.WARN)]
    assert tripped == [rule]
    others = {
        each: verdict
        for each, verdict in verdicts(check(node, purpose=Purpose.UPLOAD, metadata=CLUSTER / "node1")).items()
        if each != name
    }
    assert (rule in (Rule.R2, Rule.R3, Rule.R4, Rule.R10)) == all(each.is_rejected for each in others.values()), (
        "the others of the broker"
    )


@pytest.mark.parametrize(("rule", "breaks", "rebuild", "upload"), LIMITING.values(), ids=LIMITING)
def test_each_limit_is_drawn_alone(node: Path, rule: Rule, breaks: Break, rebuild: str, upload: str) -> None:
    """The log of orders-1 has segments at 235 and 322, and ends at 336."""
    breaks(node)
    assert [str(judged(node, "orders-1", purpose)) for purpose in (Purpose.REBUILD, Purpose.UPLOAD)] == [rebuild, upload]
    verdict = judged(node, "orders-1")
    assert verdict.rule is rule
    assert [each.rule for each in verdict.results if each.state in (RuleState.FAIL, RuleState.WARN)] == [rule] * (rule is Rule.R9)


@pytest.mark.parametrize("purpose", Purpose)
def test_a_healthy_directory_trips_none(purpose: Purpose) -> None:
    result = check(CLUSTER / "node1", purpose=purpose)
    assert len(result.replicas) == 7
    for each in result.replicas:
        assert {rule.state for rule in each.verdict.results} == {RuleState.PASS}, each.log.path
        assert not each.verdict.is_rejected
    assert [each for each in result.findings if each.severity] == []


def test_a_marker_that_is_newer_than_the_metadata_log(node: Path) -> None:
    """An image from before the broker registered says nothing of it: it is not stale, the image is."""
    (node / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":348}')
    verdict = judged(node, "orders-1")
    assert not verdict.is_rejected
    assert verdict.not_known == (Rule.R3, Rule.R4, Rule.R5, Rule.R6, Rule.R7, Rule.R8, Rule.R10)
    assert "before the broker registered with epoch 348" in verdict.results[2].ruling.evidence


def test_two_log_directories_of_one_broker(node: Path, tmp_path: Path) -> None:
    """As its configuration says: of two clusters they cannot be. That somebody names two brokers of two clusters says nothing of them."""
    other = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "other", ignore=shutil.ignore_patterns("__cluster_metadata-0")))
    meta(other, directory_id="ab9ZJ6AMRJSTUIzVRVFYag")
    (other / ".kafka_cleanshutdown").unlink()
    for path in other.glob("orders-[12]"):
        shutil.rmtree(path)
    shutil.rmtree(node / "orders-0")
    both = (node, other)
    assert verdicts(check(*both, purpose=Purpose.UPLOAD))["orders-1"].rule is Rule.R11, (
        "a disk that is not registered is none of its"
    )
    meta(other, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={node},{other}\n")
    found = verdicts(check(server_properties=str(properties)))
    assert [str(found[name]) for name in ("orders-0", "orders-1")] == ["REJECTED(R2)"] * 2
    assert "cluster.id is" in found["orders-1"].why
    for question in (check(node), check(*both)):
        assert str(verdicts(question)["orders-1"]) == "TRUSTED"
    for path in (*both, tmp_path):
        planned = make_plan(Request(paths=(str(path),), out=None, boundaries="all"))
        found_by_plan = [each.verdict for each in planned.partitions if each.verdict is not None]
        assert len(found_by_plan) >= 4
        assert not any(each.is_rejected for each in found_by_plan), path
    planned = make_plan(Request(paths=(), server_properties=str(properties), boundaries="all"))
    assert {str(each.verdict) for each in planned.partitions if each.verdict is not None} == {"REJECTED(R2)"}


def test_the_metadata_log_of_a_broker_may_lie_outside_of_its_log_dirs(node: Path, tmp_path: Path) -> None:
    """``metadata.log.dir``: it is asked by default where the configuration is given, by ``plan`` as by ``cluster source``."""
    (tmp_path / "metadata").mkdir()
    (node / "__cluster_metadata-0").rename(tmp_path / "metadata" / "__cluster_metadata-0")
    OTHER_TOPIC(node)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={node}\nmetadata.log.dir={tmp_path / 'metadata'}\n")
    assert str(verdicts(check(node))["orders-1"]) == "TRUSTED", "nothing tells"
    result = check(server_properties=str(properties))
    assert str(verdicts(result)["orders-1"]) == "REJECTED(R5)"
    assert [each.code for each in result.findings].count("source-metadata-dir") == 1
    (asked,) = {id(each.metadata.read): each.metadata.read for each in result.replicas}.values()
    assert asked is not None
    assert (asked.path, asked.is_own) == (str(tmp_path / "metadata" / "__cluster_metadata-0"), True)
    for paths in ((), (str(node),)):
        planned = make_plan(Request(paths=paths, server_properties=str(properties), boundaries="all"))
        (orders,) = [each for each in planned.partitions if each.source.topic_partition == "orders-1"]
        assert str(orders.verdict) == "REJECTED(R5)"
        assert [each.code for each in planned.findings].count("source-metadata-dir") == 1


@pytest.mark.parametrize("purpose", [Purpose.REBUILD, Purpose.UPLOAD])
def test_a_leader_epoch_above_the_clusters(node: Path, purpose: Purpose) -> None:
    """The metadata log is older than the replica, and so it says nothing of any replica of that broker, also not of one that it misses."""
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n8 292\n")
    (node / "orders-0").rename(node / "gone-0")
    result = check(node, purpose=purpose, metadata=CLUSTER / "node1")
    for each, verdict in verdicts(result).items():
        assert verdict.outcome is Outcome.UNKNOWN or verdict.offset == 0, each
        assert verdict.unknown[:6] == (Rule.R3, Rule.R4, Rule.R5, Rule.R6, Rule.R7, Rule.R8)
        assert "leader epoch 8: a later one is needed" in verdict.evidence_of(Rule.R5)
    (older,) = [each for each in result.findings if each.code == "source-metadata-older"]
    assert "/orders-1 has leader epoch 8" in older.message
    assert exit_code_of(result.findings) == 1


def test_after_an_unclean_stop_the_own_metadata_log_may_have_lost_its_end(node: Path) -> None:
    """A broker does not flush it: a topic or partition that is missing there is not known to be gone, unless another log shows it."""
    (node / "orders-1").rename(node / "orders-7")
    (node / "orders-2").rename(node / "gone-0")
    rules = {"orders-7": Rule.R6, "gone-0": Rule.R5}
    assert {name: verdicts(check(node))[name].rule for name in rules} == rules
    (node / ".kafka_cleanshutdown").unlink()
    own, other = verdicts(check(node)), verdicts(check(node, metadata=CLUSTER / "node1"))
    for name, rule in rules.items():
        assert not own[name].is_rejected, name
        assert rule in own[name].not_known, name
        assert str(other[name]) == f"REJECTED({rule.name})"


# ---------------------------------------------------------------------------------------------------------------- disks and peers


def empty(node: Path, name: str) -> None:
    """An empty log, as a leader has it that never got anything."""
    for path in (node / name).iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    (node / name / f"{0:020d}.log").touch()
    topic, _, number = name.rpartition("-")
    for checkpoint in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        lines = (node / checkpoint).read_text().splitlines()
        (node / checkpoint).write_text(
            "\n".join(f"{topic} {number} 0" if line.startswith(f"{topic} {number} ") else line for line in lines) + "\n"
        )


def test_a_replaced_disk_is_known_by_its_directory_id(tmp_path: Path) -> None:
    """Node 2 came back with a disk formatted anew: an empty log on it lost what it held.

    Until it has caught up, which it had when its leader took it among the replicas in sync, at 293: an empty log was never written to then,
    as on node 1 it may be.
    """
    for number, at, state in ((2, 292, RuleState.FAIL), (2, 293, RuleState.WARN), (1, 292, RuleState.WARN)):
        node = Path(shutil.copytree(CLUSTER / f"node{number}", tmp_path / f"node{number}-{at}"))
        empty(node, "orders-1")
        verdict = verdicts(check(node, metadata=CLUSTER / "node1", at=at))["orders-1"]
        (ending,) = [each for each in verdict.results if each.rule is Rule.R13]
        assert ending.state is state, (number, at)
        assert verdict.is_rejected == (state is RuleState.FAIL)
        assert ("first registered at 274" in ending.ruling.evidence) == (state is RuleState.FAIL)


def register(node: Path, offset: int, directories: list[bytes]) -> None:
    """Node 1 registers once more as it did last, with these log directories."""
    log = open_metadata_log(str(CLUSTER / "node1"))
    records = [each.content for batch in log.walk() for each in batch.records if isinstance(each.content, ClusterMetadataRecord)]
    last = [each for each in records if each.api_key == MetadataRecordType.REGISTER_BROKER and each.message["brokerId"] == 1][-1]
    append_metadata_record(node, MetadataRecordType.REGISTER_BROKER, {**last.message, "logDirs": directories}, last.version, offset)


def place(node: Path, offset: int, directory: bytes) -> None:
    partition_changed(offset, directories=[directory] * 3)(node)


@pytest.mark.parametrize(("kept", "state"), [("second", RuleState.WARN), ("first", RuleState.FAIL)])
def test_an_empty_log_that_was_moved_between_log_directories(node: Path, kept: str, state: RuleState) -> None:
    """It was moved into a second one, and lies in a third one now: it was lost only if the second one was gone when that came."""
    first, second, third = uuid_from_text("vbgXJ_mX3w2WzAJjsPWbwQ"), b"2" * 16, uuid_from_text("ab9ZJ6AMRJSTUIzVRVFYag")
    register(node, 348, [first, second])
    place(node, 349, second)
    register(node, 350, [second if kept == "second" else first, third])
    place(node, 351, third)
    empty(node, "orders-1")
    meta(node, directory_id="ab9ZJ6AMRJSTUIzVRVFYag")
    (ending,) = [each for each in verdicts(check(node))["orders-1"].results if each.rule is Rule.R13]
    assert ending.state is state
    assert ("first registered at 350" in ending.ruling.evidence) == (state is RuleState.FAIL)


def test_the_history_is_read_once_for_all_empty_partitions(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("orders-0", "orders-1", "orders-2", "shrink-1")
    for name in names:
        empty(node, name)
    walks = 0
    walk = MetadataLog.walk

    def counted(log: MetadataLog, from_offset: int = 0, *, records: bool = True) -> MetadataWalk:
        nonlocal walks
        walks += 1
        return walk(log, from_offset, records=records)

    monkeypatch.setattr(MetadataLog, "walk", counted)
    found = verdicts(check(node))
    assert all("empty, in leader epoch" in found[name].results[12].ruling.evidence for name in names)
    assert walks == 2, "one for the image, one for the history"


def isr(node: Path, offset: int, members: list[int], leader: int = -2) -> None:
    partition_changed(offset, isr=members, leader=leader)(node)


@pytest.mark.parametrize(
    ("leader", "state"),
    [
        pytest.param(3, RuleState.WARN, id="it caught up with another leader"),
        pytest.param(1, RuleState.FAIL, id="it was elected itself"),
    ],
)
def test_an_empty_log_on_a_new_disk_that_caught_up_was_never_written_to(node: Path, leader: int, state: RuleState) -> None:
    """Anyone who joins behind another leader has all that was committed; one elected uncleanly joins with nothing."""
    isr(node, 348, [3], leader=3)
    register(node, 349, [uuid_from_text("ab9ZJ6AMRJSTUIzVRVFYag")])
    place(node, 350, uuid_from_text("ab9ZJ6AMRJSTUIzVRVFYag"))
    isr(node, 351, [1, 3] if leader == 3 else [1], leader=-2 if leader == 3 else leader)
    empty(node, "orders-1")
    meta(node, directory_id="ab9ZJ6AMRJSTUIzVRVFYag")
    (ending,) = [each for each in verdicts(check(node))["orders-1"].results if each.rule is Rule.R13]
    assert ending.state is state


def test_an_empty_replica_next_to_a_longer_one(tmp_path: Path) -> None:
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node1"))
    empty(node, "orders-1")
    peers = (str(CLUSTER / "node3"),)
    assert str(verdicts(check(node, purpose=Purpose.UPLOAD, peers=peers))["orders-1"]) == "REJECTED(R13)"
    assert str(verdicts(check(node, peers=peers))["orders-1"]) == "TRUSTED"


def test_peers_have_the_same_lineage() -> None:
    """Of healthy replicas none is cut, although leaders of empty epochs differ."""
    for mine in (1, 2, 3):
        peers = tuple(str(CLUSTER / f"node{number}") for number in (1, 2, 3) if number != mine)
        for name, verdict in verdicts(check(CLUSTER / f"node{mine}", peers=peers)).items():
            if "stray" not in name and name != "single-0":
                assert str(verdict) == "TRUSTED", (mine, name)


def test_an_epoch_that_begins_elsewhere(node: Path) -> None:
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 300\n")
    found = verdicts(check(node, peers=(str(CLUSTER / "node3"),)))["orders-1"]
    assert str(found) == "REJECTED(R12)"
    assert "leader epoch 1 begins at 300 here and at 292 there" in found.why
    assert str(verdicts(check(node))["orders-1"]) == "TRUSTED", "alone nobody can tell"


def test_a_topic_of_another_cluster_is_no_peer(node: Path, tmp_path: Path) -> None:
    """Of the same name, and before 2.8 without an id: its epochs, and that it is longer, say nothing."""
    other = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "other"))
    (other / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 17\n")
    (other / "orders-1" / "partition.metadata").unlink()
    assert str(verdicts(check(node, peers=(str(other),)))["orders-1"]) == "REJECTED(R12)"
    meta(other, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    verdict = verdicts(check(node, peers=(str(other),)))["orders-1"]
    assert (str(verdict), "cannot be compared" in verdict.results[11].ruling.evidence) == ("TRUSTED", True)
    empty(node, "orders-2")
    assert verdicts(check(node, purpose=Purpose.UPLOAD, peers=(str(other),)))["orders-2"].results[12].state is RuleState.WARN


def test_a_tail_that_the_log_continued_without(node: Path) -> None:
    """Leader epoch 1 began at 292: a replica that wrote on in epoch 0 would be cut there by its leader (KIP-101)."""
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    found = verdicts(check(node, peers=(str(CLUSTER / "node3"),)))["orders-1"]
    assert str(found) == "TRUSTED_BELOW(292)"
    assert found.rule is Rule.R12


# ---------------------------------------------------------------------------------------------------------------- missing evidence


UNREGISTERED = {"brokerId": 1, "brokerEpoch": 15}
MARKS = "replication-offset-checkpoint"
REBUILD, UPLOAD = Purpose.REBUILD, Purpose.UPLOAD


def removed(path: str) -> Break:
    return lambda node: (node / path).unlink()


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
    "no meta.properties": (removed("meta.properties"), {"leader_asserted": True}, {UPLOAD: ("REJECTED(R2)", 3)}),
    "meta.properties is empty": (written("meta.properties", ""), {"leader_asserted": True}, {UPLOAD: ("REJECTED(R2)", 3)}),
    "meta.properties names nothing": (
        written("meta.properties", "\0garbage"),
        {"leader_asserted": True},
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
    # Of a live broker --broker-epoch takes the place of the marker: closed segments below the high watermark are trusted.
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
        assert (Rule.R11 in found.unknown) is ("high watermark" in name and purpose is not REBUILD)
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
    (node / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":16}')


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
        assert {Rule.R3, Rule.R4, Rule.R5, Rule.R6, Rule.R7, Rule.R8} <= set(verdict.unknown), name
        assert verdict.outcome is Outcome.UNKNOWN, name
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
    assert verdicts(check(node, purpose=UPLOAD))["orders-0"].offset == 496
    cut(node / "orders-0" / f"{411:020d}.log", 100)
    result = check(node, purpose=UPLOAD)
    assert (verdicts(result)["orders-0"].offset or 0) <= 411
    assert exit_code_of(result.findings) != 0


def test_an_old_copy_without_its_marker_is_not_known(tmp_path: Path) -> None:
    """Its own metadata log has an earlier registration; that of a broker that was only killed has the same one."""
    old = Path(shutil.copytree(CLUSTER / "old/node3-clean-stopped", tmp_path / "old"))
    (old / ".kafka_cleanshutdown").unlink()
    verdict = verdicts(check(old, metadata=CLUSTER / "node1"))["orders-1"]
    assert (str(verdict), verdict.unknown) == ("UNKNOWN(R10)", (Rule.R10,))
    assert "has its epoch 10, the registration 233: it may be an old copy" in verdict.why
    shutil.rmtree(old / "__cluster_metadata-0")
    assert verdicts(check(old, metadata=CLUSTER / "node1"))["orders-1"].unknown == (Rule.R10,)


def test_a_sibling_without_meta_properties_counts_as_one(node: Path, tmp_path: Path) -> None:
    """For an upload each log directory of the broker must have the marker: one whose ids are lost may be another of them."""
    other = Path(shutil.copytree(node, tmp_path / "other", ignore=shutil.ignore_patterns("__cluster_metadata-0", "orders-*")))
    (other / ".kafka_cleanshutdown").unlink()
    (other / "meta.properties").unlink()
    found = verdicts(check(node, other, purpose=Purpose.UPLOAD))["orders-1"]
    assert (str(found), found.rule) == ("TRUSTED_BELOW(322)", Rule.R9)


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
    """All voters hold the whole log of node 1. Of the log of a node that was killed another voter has heard a later epoch."""
    logs = tuple((None, str(CLUSTER / node)) for node in ("node2", "node3"))
    result = check(CLUSTER / "node1", purpose=Purpose.UPLOAD, voters=logs)
    assert exit_code_of(result.findings) == 0
    (asked,) = {id(each.metadata.read): each.metadata.read for each in result.replicas}.values()
    assert asked is not None
    assert (asked.proven_below, asked.proof) == (348, "proven committed below 348, its end")
    killed = check(CLUSTER / "old/node2-killed", purpose=Purpose.UPLOAD, voters=logs[1:])
    found = verdicts(killed)
    assert Rule.R7 in found["orders-1"].unknown
    assert "are not proven: proven committed below 76" in found["orders-1"].evidence_of(Rule.R7)
    assert found["single-0"].unknown == (), "what the log says of it has not changed since the checkpoint"
    assert exit_code_of(killed.findings) == 1


def test_a_stray_directory_has_no_line_in_the_checkpoints() -> None:
    """They go by topic and partition: that of ``reborn`` is of the topic that was made again."""
    found = {os.path.basename(each.log.path): each.log for each in check(CLUSTER / "node3").replicas}
    stray = found["reborn-0.67ad66c758e34020ac6f5b6f98f1beff-stray"]
    assert (stray.high_watermark, stray.recovery_point, found["reborn-0"].high_watermark) == (None, None, 122)


# ---------------------------------------------------------------------------------------------------------------- everything bundled


def test_before_kraft_the_operator_says_who_leads() -> None:
    logs = FIXTURES / "kafka27-mixed" / "logs"
    for fixture, purpose in itertools.product(("kafka27-mixed", "magic0"), (REBUILD, UPLOAD)):
        without_ids = verdicts(check(FIXTURES / fixture / "logs", purpose=purpose))
        assert not any(each.is_rejected for each in without_ids.values())
    for is_leader in (False, True):
        found = verdicts(check(logs, purpose=Purpose.UPLOAD, leader_asserted=is_leader))["mixed-0"]
        assert found.outcome is Outcome.TRUSTED_BELOW
        assert (Rule.R7 in found.not_known) == (not is_leader)
        assert {Rule.R3, Rule.R4, Rule.R5, Rule.R6, Rule.R8, Rule.R10} <= set(found.not_known)
        assert len(found.asserted) == is_leader
        assert found.needs_confirmation == (() if is_leader else (Rule.R3, Rule.R4, Rule.R5, Rule.R6, Rule.R7, Rule.R8, Rule.R10))
    assert verdicts(check(logs))["mixed-0"].needs_confirmation == (), "a rebuild describes local bytes"
    # Where the cluster shows, no word is asked.
    assert str(verdicts(check(CLUSTER / "node2", purpose=Purpose.UPLOAD, leader_asserted=True))["orders-1"]) == "REJECTED(R7)"


def test_a_damaged_metadata_log_is_a_finding_and_rejects_nothing(node: Path) -> None:
    """The check continues: what the log would say is not known, and no replica is called trusted."""
    for path in (node / "__cluster_metadata-0").iterdir():
        if path.suffix in (".checkpoint", ".log"):
            path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    result = check(node)
    assert {str(verdict) for verdict in verdicts(result).values()} == {"UNKNOWN(R3)"}
    assert [each.code for each in result.findings if each.severity] == ["source-metadata-unreadable"]
    assert all(Rule.R3 in verdict.not_known for verdict in verdicts(result).values())


def test_a_partition_that_cannot_be_read_ends_no_other(node: Path) -> None:
    (node / "orders-1" / "partition.metadata").write_text("no such thing")
    (node / "orders-2" / "leader-epoch-checkpoint").write_text("9\n")
    result = check(node)
    found = verdicts(result)
    assert len(found) == 7
    assert not any(verdict.is_rejected for verdict in found.values())
    assert Rule.R5 in found["orders-1"].not_known
    assert Rule.R12 in found["orders-2"].not_known
    assert [each.code for each in result.findings if each.severity] == ["source-unreadable"] * 2
