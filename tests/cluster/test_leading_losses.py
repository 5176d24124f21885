"""``cluster source``: what consumers and producers lose if a replica leads, by other replicas. Faults are next to healthy forms."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import source_verdicts
from log_dirs import cut
from manifests import CLUSTER, FIXTURES
from source_verdicts import check, meta

from formats.partition.producer_snapshot import ENTRY_DTYPE
from snaprebuild.cluster.source_check.check import SourceCheck
from snaprebuild.cluster.source_check.leading_losses import forgotten_producers
from snaprebuild.findings import Severity

FOLLOWER = FIXTURES / "follower-lost-state"
FOLLOWER_MS = 1_795_266_437_661
"""The last record of its log."""
CLUSTER_MS = 1_795_265_887_887
"""The last record of the three nodes."""
CODES = ("leading-loses-records", "leading-forgets-producers")


def losses(result: SourceCheck) -> dict[tuple[str, str], str]:
    """Messages by code and partition."""
    found = [each for each in result.findings if each.code in CODES]
    assert {each.severity for each in found} <= {Severity.FINDING}
    return {(each.code, Path(each.path).name): each.message for each in found}


def entries_of(*rows: tuple[int, int, int, int]) -> np.ndarray:
    """Producer id, last offset, timestamp, first offset of the open transaction or -1."""
    array = np.zeros(len(rows), ENTRY_DTYPE)
    for entry, row in zip(array, rows, strict=True):
        entry["producer_id"], entry["last_offset"], entry["timestamp"], entry["current_txn_first_offset"] = row
    return array


Entries = tuple[tuple[int, int, int, int], ...]
KNOWN: Entries = ((1, 40, 100, -1), (2, 60, 120, -1))
STATES: dict[str, tuple[Entries, int, Entries, int, tuple[int, ...], tuple[int, ...]]] = {
    # Entries and offset of the snapshot here, those of the other replica, and what is forgotten: producers, open transactions.
    "equal": (KNOWN, 70, KNOWN, 70, (), ()),
    "empty over data": ((), 70, KNOWN, 70, (1, 2), ()),
    "one is unknown": (KNOWN[1:], 70, KNOWN, 70, (1,), ()),
    "an earlier batch": (((1, 10, 90, -1), KNOWN[1]), 70, KNOWN, 70, (1,), ()),
    "a later batch": (((1, 65, 130, -1), KNOWN[1]), 70, KNOWN, 60, (), ()),
    "written above the snapshot": ((), 30, KNOWN, 70, (), ()),
    "expired": ((), 70, ((1, 40, 50, -1),), 70, (), ()),
    "below the log start": ((), 70, ((1, 5, 100, -1),), 70, (), ()),
    "no batch on disk": ((), 70, ((1, -1, 100, -1),), 70, (), ()),
    "a transaction is not open here": (((1, 40, 100, -1), KNOWN[1]), 70, ((1, 40, 100, 35), KNOWN[1]), 70, (), (1,)),
    "its producer is unknown": (KNOWN[1:], 70, ((1, 40, 100, 35), KNOWN[1]), 70, (1,), (1,)),
    "it is open here, too": (((1, 40, 100, 35),), 70, ((1, 40, 100, 35),), 70, (), ()),
    "it may have ended before this snapshot": (((1, 40, 100, -1),), 80, ((1, 40, 100, 35),), 70, (), ()),
    "it began above this snapshot": (((1, 40, 100, -1),), 50, ((1, 60, 120, 55),), 70, (), ()),
}


@pytest.mark.parametrize("name", STATES)
def test_what_a_snapshot_forgets(name: str) -> None:
    mine, offset, theirs, others_offset, producers, transactions = STATES[name]
    found = forgotten_producers(entries_of(*mine), offset, entries_of(*theirs), others_offset, log_start_offset=8, oldest_ms=60)
    if not producers and not transactions:
        assert found is None
    else:
        assert found is not None
        assert (found.producer_ids, found.open_transactions) == (producers, transactions)


def test_a_follower_that_started_from_remote_storage_forgot_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two brokers of 4.3.1. Kafka's own classes say which producers are live at the log end."""
    monkeypatch.setattr(source_verdicts, "NOW_MS", FOLLOWER_MS)
    leader, follower = FOLLOWER / "node1", FOLLOWER / "node2"
    found = losses(check(follower, peers=[str(leader)]))
    manifest = json.loads((FOLLOWER / "manifest.json").read_text())
    newest = manifest["follower"]["snapshots"][f"{833:020d}.snapshot"]["entries"]
    known = {each["producer_id"]: each["last_offset"] for each in newest}
    live = {each["producer_id"]: each["last_offset"] for each in manifest["expected_log_end_snapshot"]["entries"]}
    # Of a producer with nothing but the marker of a transaction no offset shows where it wrote.
    forgotten = sorted(each for each, offset in live.items() if offset >= 0 and known.get(each) != offset)
    ((key, message),) = found.items()
    assert key == ("leading-forgets-producers", "payments-0")
    assert f"{len(forgotten)} producers ({', '.join(map(str, forgotten[:3]))} and {len(forgotten) - 3} more)" in message
    assert losses(check(leader, peers=[str(follower)])) == {}
    assert losses(check(follower, leader)).keys() == found.keys(), "both are among the paths"
    monkeypatch.setattr(source_verdicts, "NOW_MS", FOLLOWER_MS + 86_400_001)
    assert losses(check(follower, peers=[str(leader)])) == {}, "a day later they have expired"


@pytest.mark.parametrize("as_peers", [True, False])
def test_healthy_replicas_lose_nothing(as_peers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_verdicts, "NOW_MS", CLUSTER_MS)
    nodes = [CLUSTER / f"node{number}" for number in (1, 2, 3)]
    results = [check(node, peers=[*map(str, nodes)]) for node in nodes] if as_peers else [check(*nodes)]
    assert [losses(each) for each in results] == [{}] * len(results)


def lost_end(node: Path) -> None:
    cut(node / "orders-1" / f"{322:020d}.log", 0)


def forked(node: Path) -> None:
    """Its records from 292 on are of epoch 0: a leader wrote them that was not elected again. The epoch is not in the batch's CRC."""
    directory = node / "orders-1"
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for path in directory.glob("*.log"):
        data = bytearray(path.read_bytes())
        at = 0
        while at < len(data):
            data[at + 12 : at + 16] = bytes(4)
            at += 12 + int.from_bytes(data[at + 8 : at + 12])
        path.write_bytes(data)


def cut_epochs(node: Path) -> None:
    """The records are the same: only the file lacks the epoch."""
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def of_another_cluster(node: Path) -> None:
    lost_end(node)
    meta(node, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")


def emptied_snapshot(node: Path) -> None:
    newest = max((node / "orders-1").glob("*.snapshot"))
    newest.write_bytes(bytes.fromhex("000148674bc700000000"))


CHANGES: dict[str, tuple[Callable[[Path], Any], str | None]] = {
    "unchanged": (lambda _: None, None),
    "lost its end": (lost_end, "leading-loses-records"),
    "forked": (forked, "leading-loses-records"),
    "cut epochs": (cut_epochs, None),
    "of another cluster": (of_another_cluster, None),
    "an empty snapshot at its end": (emptied_snapshot, "leading-forgets-producers"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_disk_next_to_a_healthy_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_verdicts, "NOW_MS", CLUSTER_MS)
    change, code = CHANGES[name]
    node = Path(shutil.copytree(CLUSTER / "node2", tmp_path / "node2"))
    change(node)
    found = losses(check(node, peers=[str(CLUSTER / "node1")]))
    assert list(found) == ([] if code is None else [(code, "orders-1")])
    if code == "leading-loses-records":
        why = {
            "lost its end": "it ends at 322, below the high watermark 336 of ",
            "forked": "from 292 on it has other records than ",
        }
        assert why[name] in found[code, "orders-1"]
        both = losses(check(node, CLUSTER / "node1"))
        assert (code, "orders-1") in both, "the other disk is one of the paths"
