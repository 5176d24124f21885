"""Verdicts on real replicas: those of three nodes and their old disks, and every bundled directory."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manifests import CLUSTER, FIXTURES
from rule_marks import WARNS, mark_of
from source_verdicts import REBUILD, UPLOAD, check, verdicts, without_result

from snaprebuild.cluster.source_check.verdict import SourceRule
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome

pytestmark = pytest.mark.usefixtures("each_image_once")

MANIFEST: dict[str, Any] = json.loads((CLUSTER / "manifest.json").read_text())
LAST_OFFSET = 347
KAFKA_DECIDES = {
    # The manifest rejects it for R8. With one replica RECOVERING never ends: only a change of the ISR ends it. Kafka still elects and
    # serves the replica: node 2 led single-0 from offset 127 on in leader epoch 2, according to its own leader epochs.
    # So a healthy broker would be rejected for ever once it is stopped. tests/broker/test_source_verdict.py has a real one.
    ("old/node2-replaced-disk", "single-0", 272): ("TRUSTED", "TRUSTED_BELOW(127)")
}


# ---------------------------------------------------------------------------------------------------------------- three nodes


def expected() -> Iterator[tuple[str, int, str, str, str]]:
    for directory, reported in MANIFEST["directories"].items():
        for name, partition in reported["partitions"].items():
            for key, at in (
                ("verdict_final_image", LAST_OFFSET),
                ("verdict_image_at_copy", reported.get("image_before_its_next_registration_offset")),
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
            purpose: verdicts(check(CLUSTER / directory, purpose=purpose, metadata=CLUSTER / "node1", requested_offset=at))
            for purpose in (Purpose.REBUILD, Purpose.UPLOAD)
        }
        for _, _, name, rebuild, upload in (each for each in wanted if each[1] == at):
            right = KAFKA_DECIDES.get((directory, name, at), (rebuild, upload))
            assert (str(found[Purpose.REBUILD][name]), str(found[Purpose.UPLOAD][name])) == right, (name, at)


def test_where_kafka_decides_against_the_manifest() -> None:
    """Each exception has another verdict in the manifest, and its evidence is in the directories."""
    by_place = {(directory, name, at): (rebuild, upload) for directory, at, name, rebuild, upload in expected()}
    for place, right in KAFKA_DECIDES.items():
        assert by_place[place] != right
    single = MANIFEST["directories"]["old/node2-replaced-disk"]["partitions"]["single-0"]
    assert single["leader_epochs"] == [[0, 0], [2, 127]], "it led again after the kill -9"
    assert single["log_end_offset"] == 127
    verdict = verdicts(check(CLUSTER / "old/node2-replaced-disk", metadata=CLUSTER / "node1", requested_offset=272))["single-0"]
    (recovery,) = [each for each in verdict.results if each.rule is SourceRule.R8]
    assert (mark_of(recovery), "one replica" in recovery.evidence) == (WARNS, True)


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


# ---------------------------------------------------------------------------------------------------------------- everything bundled


def test_before_kraft_the_operator_says_who_leads() -> None:
    logs = FIXTURES / "kafka27-mixed" / "logs"
    for fixture, purpose in itertools.product(("kafka27-mixed", "magic0"), (REBUILD, UPLOAD)):
        without_ids = verdicts(check(FIXTURES / fixture / "logs", purpose=purpose))
        assert not any(each.is_rejected for each in without_ids.values())
    for is_leader in (False, True):
        found = verdicts(check(logs, purpose=Purpose.UPLOAD, i_am_the_leader=is_leader))["mixed-0"]
        assert found.outcome is VerdictOutcome.TRUSTED_BELOW
        assert (SourceRule.R7 in without_result(found)) == (not is_leader)
        assert {SourceRule.R3, SourceRule.R4, SourceRule.R5, SourceRule.R6, SourceRule.R8, SourceRule.R10} <= set(
            without_result(found)
        )
        assert len(found.asserted_by_operator) == is_leader
        assert found.needs_confirmation == (
            ()
            if is_leader
            else (SourceRule.R3, SourceRule.R4, SourceRule.R5, SourceRule.R6, SourceRule.R7, SourceRule.R8, SourceRule.R10)
        )
    assert verdicts(check(logs))["mixed-0"].needs_confirmation == (), "a rebuild describes local bytes"
    # Where the cluster shows, no word is asked.
    assert str(verdicts(check(CLUSTER / "node2", purpose=Purpose.UPLOAD, i_am_the_leader=True))["orders-1"]) == "REJECTED(R7)"


def test_a_damaged_metadata_log_is_a_finding_and_rejects_nothing(node: Path) -> None:
    """The check continues: what the log would say is not known, and no replica is called trusted."""
    for path in (node / "__cluster_metadata-0").iterdir():
        if path.suffix in (".checkpoint", ".log"):
            path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    result = check(node)
    assert {str(verdict) for verdict in verdicts(result).values()} == {"UNKNOWN(R3)"}
    assert [each.code for each in result.findings if each.severity] == ["source-metadata-unreadable"]
    assert all(SourceRule.R3 in without_result(verdict) for verdict in verdicts(result).values())


def test_a_partition_that_cannot_be_read_ends_no_other(node: Path) -> None:
    (node / "orders-1" / "partition.metadata").write_text("no such thing")
    (node / "orders-2" / "leader-epoch-checkpoint").write_text("9\n")
    result = check(node)
    found = verdicts(result)
    assert len(found) == 7
    assert not any(verdict.is_rejected for verdict in found.values())
    assert SourceRule.R5 in without_result(found["orders-1"])
    assert SourceRule.R12 in without_result(found["orders-2"])
    assert [each.code for each in result.findings if each.severity] == ["source-unreadable"] * 2
