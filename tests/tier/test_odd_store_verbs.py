"""Odd and healthy stores through all verbs that judge copies: no two answers contradict each other."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from budgets import TIER
from command import Run, in_json
from manifests import LONG_AGO
from odd_stores import OddStore, odd_store
from tiers import TOPIC_ID, id_text

SEEDS = {"quick": (*range(9), 23, 29), "full": range(40), "night": range(300)}[TIER]
"""In 23 and 29 a copy ends with lost records, and the rest of it is below the log start."""
TOPIC = id_text(TOPIC_ID)


def written(seed: int, root: Path) -> OddStore:
    """The store, and the empty log of its leader."""
    store = odd_store(seed, root / "remote", "t", TOPIC_ID, 4, 1_795_000_000_000)
    logs = root / "logs"
    (store.write_log(logs / "t-0") / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC}\n")
    offsets = {"log-start": store.log_start, "recovery-point": store.log_end, "replication": store.log_end}
    for name, offset in offsets.items():
        (logs / f"{name}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    (logs / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={TOPIC}\ndirectory.id={TOPIC[::-1]}\n")
    (logs / ".kafka_cleanshutdown").touch()
    return store


def copies_of(run: Run) -> dict[str, dict[str, Any]]:
    return {copy["segment_id"]: copy for each in run.document["partitions"] if each["topic_id"] == TOPIC for copy in each["copies"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verbs_agree(seed: int, tmp_path: Path) -> None:
    store = written(seed, tmp_path)
    remote = tmp_path / "remote"
    document, ledger = tmp_path / "audit.json", tmp_path / "ledger"
    inventory = in_json("tier inventory", remote)
    metadata = in_json("tier metadata", remote, "--log-dir", tmp_path / "logs")
    audit = in_json("tier audit", remote, *LONG_AGO, "--save-json", document)
    in_json("tier audit", remote, *LONG_AGO, "--ledger", ledger, "--set", "max_read_bytes=3000")
    in_turns = in_json("tier audit", remote, *LONG_AGO, "--ledger", ledger)
    repair = in_json("tier repair", remote, *LONG_AGO, "--dry-run", "--allow-unverified")
    by_audit = in_json("tier repair", remote, "--audit", document, "--dry-run", "--allow-unverified")

    whole = {id_text(segment_id) for segment_id, _, _ in store.copies}
    audited = copies_of(audit)
    assert {name for name, copy in copies_of(inventory).items() if copy["state"] != "unfinished"} == audited.keys() >= whole
    assert {name: copy["verdict"] for name, copy in copies_of(in_turns).items()} == {
        name: copy["verdict"] for name, copy in audited.items()
    }
    # A copy that the audit does not read, as it is of another line of leaders, gets no record.
    rows = copies_of(metadata)
    recorded = {name for name, copy in rows.items() if copy["record_decision"] == "included"}
    assert recorded <= {name for name, copy in audited.items() if copy["verdict"] in ("right", "consistent", "unproven")}
    offsets = {
        offset for segment_id, first, last in store.copies if id_text(segment_id) in recorded for offset in range(first, last + 1)
    }
    assert offsets >= set(range(store.log_start, store.log_end)), "each offset is served"
    (partition,) = [each for each in metadata.document["partitions"] if each["topic_id"] == TOPIC]
    assert partition["refusals"] == []
    assert [each["gaps"] for each in inventory.document["partitions"] if each["topic_id"] == TOPIC] == [[]]
    assert (repair.exit_code, repair.document["copies"]) == (by_audit.exit_code, by_audit.document["copies"])
    assert repair.document["counts"] == by_audit.document["counts"]
    shutil.rmtree(tmp_path / "remote")
