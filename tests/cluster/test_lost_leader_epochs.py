"""No advice makes a replica the leader whose leader epochs do not cover its batches of format 2: Kafka would delete remote segments."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import in_json
from log_dirs import batch_positions, remove_snapshots, snapshot_name
from manifests import FIXTURES
from merged_scans import is_elected, merged_documents
from source_verdicts import check, verdicts
from stopped_broker import BASES, KRAFT, TOPIC_ID, made

import snaprebuild as library
from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.source_check import plan_gate
from snaprebuild.cluster.source_check.verdict import SourceRule
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.plan.source_verdict import VerdictOutcome as Verdict

ORDERS_ID = TOPIC_ID.rpartition(" ")[2]
Change = Callable[[Path], object]
WHOLE = "0\n2\n0 0\n5 20\n"


def with_two_epochs(directory: Path) -> Path:
    """The last segment is of leader epoch 5, which the checksum of a batch does not cover."""
    segment = directory / f"{BASES[-1]:020d}.log"
    data = bytearray(segment.read_bytes())
    for position in batch_positions(segment):
        data[position + 12 : position + 16] = (5).to_bytes(4, "big")
    segment.write_bytes(data)
    return written(WHOLE)(directory)


def written(text: str) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        (directory / "leader-epoch-checkpoint").write_text(text)
        return directory

    return write


def missing(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").unlink()


def killed_before_the_checkpoint(directory: Path) -> None:
    (directory.parent / ".kafka_cleanshutdown").unlink()
    written("0\n1\n0 0\n")(directory)


def log_start_in_the_last_epoch(directory: Path) -> None:
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    written("0\n1\n5 20\n")(directory)


UNFIT: dict[str, tuple[Change, str]] = {
    "empty": (written(""), "no leader epochs"),
    "version alone": (written("0\n0\n"), "no leader epochs"),
    "missing": (missing, "no leader epochs"),
    "cut at the start": (written("0\n1\n5 20\n"), "the first leader epochs are gone"),
    "cut at the end": (written("0\n1\n0 0\n"), "the last leader epochs are gone"),
    "negative": (written("0\n2\n-1 0\n5 20\n"), "a negative number in leader-epoch-checkpoint"),
    "rubbish": (written("rubbish\n"), "malformed leader-epoch-checkpoint"),
}
FIT: dict[str, Change] = {
    "whole": written(WHOLE),
    "elected without a record": written("0\n3\n0 0\n5 20\n7 30\n"),
    "log start in the last epoch": log_start_in_the_last_epoch,
    "killed before the checkpoint was written": killed_before_the_checkpoint,
}


def fleet_of(place: Path, change: Change, *, others_leads: bool = True) -> Any:
    """Broker 1 has every snapshot, and the change; broker 2 lacks snapshots and leads."""
    brokers = {}
    for node in (1, 2):
        directory = with_two_epochs(made(place / str(node)))
        (directory.parent / "meta.properties").write_text(KRAFT.replace("node.id=1", f"node.id={node}"))
        brokers[node] = directory
    change(brokers[1])
    (brokers[2] / snapshot_name(BASES[1])).unlink()
    documents = {
        node: in_json("scan", directory.parent, "--kafka-release", "4.3.1").document for node, directory in brokers.items()
    }
    leader = 2 if others_leads else 1
    view = ClusterView(9, {("orders", 0, ORDERS_ID): Placement((1, 2), frozenset({1, 2}), leader)})
    return merged_documents(place, documents, view=view)


def fates_of_the_scan(place: Path) -> Any:
    return json.loads((place / "1.json").read_text())["fates"]


@pytest.mark.parametrize("state", UNFIT)
def test_such_a_replica_is_never_elected(tmp_path: Path, state: str) -> None:
    change, cause = UNFIT[state]
    result = fleet_of(tmp_path, change)
    (partition,) = result.partitions
    assert (partition.outcome, partition.elect) == (FleetOutcome.REPAIR, 2)
    assert not is_elected(result, 1)
    (finding,) = [each for each in result.findings if each.code == "replica-must-not-lead"]
    before, _, after = finding.message.partition(" Do not elect it.")
    assert before.startswith("broker 1 must not lead 1 partition (orders-0): ")
    assert before.endswith(f"{cause}.")
    assert after.strip() in {each["remedy"] for each in fates_of_the_scan(tmp_path)}, "the way out that `scan` prints"
    (restart,) = [each for each in result.findings if each.code == "restart-elects-unfit-replica"]
    assert "may elect broker 1" in restart.message, "the restart of broker 2, which leads"
    assert finding.severity


def test_a_leader_that_must_not_lead_is_named(tmp_path: Path) -> None:
    result = fleet_of(tmp_path, missing, others_leads=False)
    (finding,) = [each for each in result.findings if each.code == "replica-must-not-lead"]
    assert "It leads 1 partition (orders-0) now." in finding.message
    assert not is_elected(result, 1)


@pytest.mark.parametrize("state", FIT)
def test_a_healthy_one_is_elected(tmp_path: Path, state: str) -> None:
    result = fleet_of(tmp_path, FIT[state])
    assert not [each for each in result.findings if each.code in ("replica-must-not-lead", "restart-elects-unfit-replica")]
    (partition,) = result.partitions
    assert (partition.outcome, partition.elect) == (FleetOutcome.ELECT, 1)
    assert is_elected(result, 1)


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("state", UNFIT)
def test_it_is_no_source_either(tmp_path: Path, state: str, purpose: Purpose) -> None:
    directory = with_two_epochs(made(tmp_path, kraft=False))
    UNFIT[state][0](directory)
    verdict = verdicts(check(directory.parent, purpose=purpose))["orders-0"]
    assert verdict.outcome is Verdict.UNKNOWN
    assert SourceRule.R12 in verdict.rules_of_damaged_files
    refusal = verdict.in_place_refusal(str(directory))
    assert refusal is not None
    assert "leader" in refusal.message


@pytest.mark.parametrize("state", FIT)
def test_a_healthy_one_is_a_source(tmp_path: Path, state: str) -> None:
    directory = with_two_epochs(made(tmp_path, kraft=False))
    FIT[state](directory)
    verdict = verdicts(check(directory.parent))["orders-0"]
    assert SourceRule.R12 not in (*verdict.rules_of_damaged_files, *verdict.unknown_rules)


def test_a_second_log_directory_with_the_same_name_is_judged_alone(tmp_path: Path) -> None:
    directory = with_two_epochs(made(tmp_path, kraft=False))
    other = Path(shutil.copytree(directory.parent, tmp_path / "copy"))
    missing(other / "orders-0")
    document = in_json("scan", directory.parent, other, "--kafka-release", "3.9.1").document
    unfit = {each["path"]: each["must_not_lead"] for each in document["partitions"]}
    assert unfit[str(directory)] is None
    assert unfit[str(other / "orders-0")]["cause"] == "no leader epochs"


@pytest.mark.parametrize("name", ["magic1", "magicup", "tiered-local", "kraft-cluster3/node2"])
def test_no_log_of_a_healthy_broker_is_unfit(name: str) -> None:
    """Message format 1, format 1 and then 2, a tiered topic, and several leader epochs."""
    document = in_json("scan", FIXTURES / name).document
    assert document["partitions"]
    assert {each["topic_partition"]: each["must_not_lead"] for each in document["partitions"] if each["must_not_lead"]} == {}


def test_the_document_of_a_plan_names_arguments_in_the_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the refusal of the source is the fault: today the fate of the same file is."""
    monkeypatch.setattr(plan_gate, "fate_against_writing", lambda *_: None)
    directory = with_two_epochs(made(tmp_path, kraft=False))
    missing(directory)
    remove_snapshots(directory)
    result = library.plan(directory.parent)
    (partition,) = result.document.partitions
    (refusal,) = [each.message for each in result.findings if each.code == "source-unknown"]
    assert partition.fault == refusal
    assert refusal.endswith("use out DIR")
    assert "use --out DIR" in result.to_json()
