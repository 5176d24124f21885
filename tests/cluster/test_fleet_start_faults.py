"""``fleet`` says no less than ``scan``: a broker that does not start, an offline log directory, the way out, unread paths."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from merged_scans import TOPIC_ID, is_elected, merged, merged_documents, view
from pages import scan_document, scanned
from sentences import DELETED_MEANWHILE

import snaprebuild.broker
from snaprebuild.broker.fates import FateKind
from snaprebuild.cluster.fleet.cluster_view import Placement
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.fleet.merge import FleetResult
from snaprebuild.cluster.fleet.replicas import ReplicaReadiness
from snaprebuild.findings import Severity

CHOWN = "Give the file to the broker's user (chown)"


def fate(kind: FateKind, path: str = "/kafka", severity: str = "damaged", **changed: Any) -> dict[str, Any]:
    return {
        "kind": kind.value,
        "severity": severity,
        "subject": path,
        "path": path,
        "cause": "the cause",
        "detail": "backup",
        "evidence": "the listing",
        "age": None,
        "releases": None,
        "log_line": "a line",
        "remedy": "Move it out of the log directory",
        "in_sync": [],
        "holds_broker": True,
        **changed,
    }


def fleet_with(place: Path, *fates: dict[str, Any], placed: bool = True) -> FleetResult:
    """Broker 1 lacks snapshots and leads; broker 2 has all, and these fates."""
    other = scan_document([scanned("a"), scanned("b", log_dir="/other", path="/other/b-0")], node_id=2)
    other["log_dirs"].append({**other["log_dirs"][0], "path": "/other"})
    other["fates"] = list(fates)
    documents = {1: scan_document([scanned("a", missing=1), scanned("b", missing=1)], node_id=1), 2: other}
    placement = Placement((1, 2), frozenset({1, 2}), 1)
    return merged_documents(place, documents, view=view(a=placement, b=placement) if placed else None)


def states(result: FleetResult, node: int = 2) -> dict[str, ReplicaReadiness]:
    return {each.name: replica.state for each in result.partitions for replica in each.replicas if replica.node_id == node}


BLOCKED, READY = ReplicaReadiness.BLOCKED, ReplicaReadiness.READY
FAULTS = {
    "does not start": (fate(FateKind.NO_START), {"a-0": BLOCKED, "b-0": BLOCKED}, "broker 2 does not start"),
    "by one partition": (fate(FateKind.NO_START, "/kafka/a-0"), {"a-0": BLOCKED, "b-0": BLOCKED}, "broker 2 does not start"),
    "by a path outside": (fate(FateKind.NO_START, "/gone"), {"a-0": BLOCKED, "b-0": BLOCKED}, "broker 2 does not start"),
    "fails once": (fate(FateKind.FAILS_ONCE, "/kafka/c-0"), {"a-0": BLOCKED, "b-0": BLOCKED}, "broker 2 fails at its next start"),
    "offline": (fate(FateKind.OFFLINE), {"a-0": BLOCKED, "b-0": READY}, "log directory /kafka of broker 2 goes offline"),
    "offline by a file": (
        fate(FateKind.OFFLINE, "/other/b-0/x"),
        {"a-0": READY, "b-0": BLOCKED},
        "log directory /other of broker 2",
    ),
}


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("name", FAULTS)
def test_a_broker_that_does_not_start_is_not_ready(name: str, placed: bool, tmp_path: Path) -> None:
    fault, expected, said = FAULTS[name]
    result = fleet_with(tmp_path, fault, placed=placed)
    assert states(result) == expected
    (finding,) = [each for each in result.findings if each.code == "broker-does-not-start"]
    assert finding.severity is Severity.DAMAGED
    assert finding.message.startswith(said)
    assert "the cause (backup); correct this before any restart. Move it out" in finding.message
    for partition in result.partitions:
        is_blocked = expected[partition.name] is BLOCKED
        assert (partition.outcome, partition.elect) == ((FleetOutcome.REPAIR, 1) if is_blocked else (FleetOutcome.ELECT, 2))
    assert [step.node_id for step in result.steps] == [1]
    assert not [each for each in result.findings if each.code in ("replica-must-not-lead", "restart-elects-unfit-replica")]
    if placed and BLOCKED in expected.values() and READY not in expected.values():
        assert not is_elected(result, 2)


def test_one_finding_for_a_broker_with_many_causes(tmp_path: Path) -> None:
    result = fleet_with(tmp_path, fate(FateKind.NO_START), fate(FateKind.OFFLINE, "/other"))
    (finding,) = [each for each in result.findings if each.code == "broker-does-not-start"]
    assert "(and 1 more cause)" in finding.message


HEALTHY = {
    "no fate": [],
    "a note": [fate(FateKind.NO_START, severity="note")],
    "recovers": [fate(FateKind.RECOVERED, "/kafka/a-0", "note")],
    "catches up": [fate(FateKind.CATCHES_UP, "/kafka/a-0", "finding")],
    "loss of another partition": [fate(FateKind.END_LOST, "/kafka/c-0")],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_other_fates_leave_the_broker_ready(name: str, tmp_path: Path) -> None:
    result = fleet_with(tmp_path, *HEALTHY[name])
    assert states(result) == {"a-0": READY, "b-0": READY}
    assert [each.code for each in result.findings if each.severity is Severity.DAMAGED] == []


def test_the_fates_of_a_replaced_disk_are_left_out(tmp_path: Path) -> None:
    """Faults of the old disk are no fault of the broker."""
    document = {**scan_document([scanned("a")], node_id=2), "fates": [fate(FateKind.NO_START)]}
    placed = view(a=Placement((2,), frozenset({2}), 2))
    placed.directories[2] = frozenset({TOPIC_ID})
    result = merged_documents(tmp_path, {2: document}, view=placed)
    assert "broker-does-not-start" not in {each.code for each in result.findings}


def must_not_lead(place: Path, **why: str) -> str:
    lost = {"cause": "a file that the broker may not read", "severity": "damaged", **why}
    result = merged(place, {1: [scanned("a", must_not_lead=lost)], 2: [scanned("a")]})
    (finding,) = [each for each in result.findings if each.code == "replica-must-not-lead"]
    return finding.message.partition(" Do not elect it. ")[2]


def test_the_advice_is_that_of_the_cause(tmp_path: Path) -> None:
    assert must_not_lead(tmp_path, remedy=CHOWN) == CHOWN
    assert must_not_lead(tmp_path) == "`scan` on that broker prints the way out", "an earlier document"


REMOVAL = re.compile(r".{0,60}\bremove (?:the|these|this)[a-z ]* director(?:y|ies)\b(?!\.)")
"""Not the line ``directory.id`` of a file."""


def test_no_advice_removes_a_directory_without_another_replica_in_sync() -> None:
    """All texts of the fates, of the catalogue, and of ``fleet``."""
    package = Path(snaprebuild.broker.__file__).parent.parent
    texts = [(package / "findings_catalogue.toml").read_text()]
    for path in (*(package / "broker").glob("*.py"), *(package / "cluster/fleet").glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts += [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    advice = [each for text in texts for each in REMOVAL.findall(text)]
    assert len(advice) >= 5
    assert [each for each in advice if "if another replica is in sync, remove" not in each] == []


UNREAD = [
    {"unread": 1, "unread_paths": ["/kafka/orders-0"]},
    {"unread": 2, "unread_paths": ["/kafka/orders-0", "/kafka/x"]},
]


@pytest.mark.parametrize("head", UNREAD)
@pytest.mark.parametrize("severity", ["note", "finding", "damaged"])
def test_unread_paths_make_a_scan_incomplete(severity: str, head: dict[str, Any], tmp_path: Path) -> None:
    found = {
        "code": "busy-log",
        "severity": severity,
        "path": "/kafka/orders-0",
        "message": DELETED_MEANWHILE,
        "offset": None,
    }
    document = {**scan_document([scanned("orders")], [found], node_id=2), **head}
    (finding,) = merged_documents(tmp_path, {2: document}).findings
    assert (finding.code, finding.is_unread) == ("scan-not-whole", True)
    assert "first /kafka/orders-0" in finding.message


def test_a_partition_that_was_deleted_during_the_run_does_not(tmp_path: Path) -> None:
    """``scan`` writes a note, and no unread path."""
    gone = {"code": "gone-meanwhile", "severity": "note", "path": "/kafka/x-0", "message": "was deleted", "offset": None}
    assert merged_documents(tmp_path, {2: scan_document([scanned("orders")], [gone], node_id=2)}).findings == ()
