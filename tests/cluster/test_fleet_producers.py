"""``fleet``: producers and transactions that a replica has forgotten, by the newest snapshots. Faults are next to healthy forms."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import in_json
from manifests import CLUSTER
from merged_scans import merged_documents
from pages import scan_document, scanned

NOW_MS = 1_795_262_400_000
CLUSTER_MS = 1_795_265_887_887
"""The last record of the three nodes."""
CODE = "leading-forgets-producers"
HOUR_MS = 3_600_000
Newest = dict[str, int | None]


def newest(entries: int = 2, offset: int = 500, **changed: int | None) -> Newest:
    empty = {"least_offset": None, "newest_timestamp_ms": None}
    some = {"least_offset": 40, "newest_timestamp_ms": NOW_MS - HOUR_MS}
    return {"offset": offset, "entries": entries, "first_open_offset": None, **(some if entries else empty), **changed}


STATES: dict[str, tuple[Newest, Newest, dict[str, Any], str | None]] = {
    # The newest snapshots of brokers 1 and 2, changes of the replica of broker 1, and what is said of that.
    "equal": (newest(), newest(), {}, None),
    "empty": (newest(0), newest(), {}, "in a-0 the newest snapshot, at 500, is empty, and broker 2 knows 2 producers at 500"),
    "empty, later": (newest(0), newest(offset=400), {}, "broker 2 knows 2 producers at 400"),
    "both empty": (newest(0), newest(0), {}, None),
    "empty, before": (newest(0, 400), newest(), {}, None),
    "all expired": (newest(0), newest(newest_timestamp_ms=NOW_MS - 25 * HOUR_MS), {}, None),
    "records below the log start": (newest(0), newest(), {"log_start_offset": 100}, None),
    "of a fork": (newest(0), newest(), {"leader_epoch": 4, "leader_epoch_start_offset": 300}, None),
    "elected without a record": (newest(0), newest(), {"leader_epoch": 4, "leader_epoch_start_offset": 500}, "is empty"),
    "fewer, which may have expired": (newest(1), newest(2), {}, None),
    "no open transaction": (newest(), newest(first_open_offset=450), {}, "broker 2 has one that is open from 450"),
    "the same open transaction": (newest(first_open_offset=450), newest(first_open_offset=450), {}, None),
    "ended above": (newest(), newest(offset=480, first_open_offset=450), {}, None),
    "begun above": (newest(offset=400), newest(first_open_offset=450), {}, None),
}


@pytest.mark.parametrize("name", STATES)
def test_what_a_state_forgets(name: str, tmp_path: Path) -> None:
    mine, theirs, changed, said = STATES[name]
    documents = {
        1: scan_document([scanned("a", newest_snapshot=mine, **changed)], node_id=1),
        2: scan_document([scanned("a", newest_snapshot=theirs)], node_id=2),
    }
    found = [each for each in merged_documents(tmp_path, documents).findings if each.code == CODE]
    assert [each.path for each in found] == ([] if said is None else [str(tmp_path / "1.json")])
    if said is not None:
        assert said in found[0].message
        assert found[0].message.startswith("if broker 1 leads 1 partition (a-0), producers get errors or write duplicates")


def test_a_live_broker_has_its_state_in_memory(tmp_path: Path) -> None:
    documents = {node: scan_document([scanned("a", newest_snapshot=newest(node - 1))], node_id=node) for node in (1, 2)}
    documents[1]["log_dirs"][0]["shutdown"] = "running"
    assert CODE not in {each.code for each in merged_documents(tmp_path, documents).findings}


def test_the_expiration_is_that_of_the_broker(tmp_path: Path) -> None:
    documents = {node: scan_document([scanned("a", newest_snapshot=newest(node - 1))], node_id=node) for node in (1, 2)}
    settings = {"inter_broker_protocol_version": None, "copy_quota_bytes_per_second": None}
    documents[1]["settings"] = {**settings, "producer_expiration_ms": HOUR_MS}
    assert CODE not in {each.code for each in merged_documents(tmp_path, documents).findings}


def emptied(node: Path) -> None:
    max((node / "orders-1").glob("*.snapshot")).write_bytes(bytes.fromhex("000148674bc700000000"))


@pytest.mark.parametrize(("change", "is_found"), [(lambda _: None, False), (emptied, True)])
def test_nodes_of_a_real_cluster(change: Callable[[Path], object], is_found: bool, tmp_path: Path) -> None:
    node = Path(shutil.copytree(CLUSTER / "node2", tmp_path / "node2"))
    change(node)
    documents = {number: in_json("scan", path).document for number, path in ((1, CLUSTER / "node1"), (2, node))}
    for each in documents.values():
        each["run"]["at_ms"] = CLUSTER_MS
    found = [each.message for each in merged_documents(tmp_path, documents).findings if each.code == CODE]
    assert len(found) == is_found
    assert all("if broker 2 leads 1 partition (orders-1)" in each for each in found)
    assert all("broker 1 knows 8 producers at 336" in each for each in found)
