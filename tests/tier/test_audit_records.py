"""``tier audit --level records``: each record of each copy is decoded, and the first damaged batch of a copy is a finding with its byte."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import in_json
from log_dirs import batch, batch_positions, record
from manifests import FIXTURES
from tiers import Copy, write_tier

from formats.checksum import crc32c
from snaprebuild.errors import LimitReachedError
from snaprebuild.snapshots.engine import schedule
from snaprebuild.tier.audit import record_check

TIERED = FIXTURES / "tiered-local"
AIVEN = FIXTURES / "aiven-layout"
KEY = ("--set", f"private_key={AIVEN / 'keys' / 'key1.private.pem'}")
AS_OF = ("--as-of", "2026-11-21", "--jobs", 1)


def audited(*arguments: object) -> dict[str, object]:
    return in_json("tier audit", *arguments, "--level", "records", *AS_OF).document


def counted(store: Path) -> int:
    """Records of all copies of a LocalTieredStorage, control records included, by the counts in the headers."""
    total = 0
    for path in store.rglob("*.log"):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            total += int.from_bytes(data[at + 57 : at + 61], "big")
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return total


def with_bad_record(data: bytes) -> bytes:
    """A batch whose first record has a length that is wrong, under a right checksum."""
    changed = bytearray(data)
    changed[61] ^= 0x04
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_every_record_of_a_healthy_store_is_counted() -> None:
    run = in_json("tier audit", TIERED / "remote", "--metadata-log", TIERED / "logs", "--level", "records", *AS_OF)
    full = in_json("tier audit", TIERED / "remote", "--metadata-log", TIERED / "logs", *AS_OF)
    (partition,) = run.document["partitions"]
    assert partition["records_read"] == counted(TIERED / "remote") > 5_000
    assert f"Records decoded: {partition['records_read']}." in run.document["answer"]
    assert (run.exit_code, run.document["findings"]) == (full.exit_code, full.document["findings"])
    assert run.document["totals"] == full.document["totals"]
    assert full.document["partitions"][0]["records_read"] is None
    costs = run.document["estimate"]["read_bytes"], full.document["estimate"]["read_bytes"]
    assert costs[0] - costs[1] == sum(path.stat().st_size for path in (TIERED / "remote").rglob("*.log"))


@pytest.mark.parametrize("name", ["encrypted-zstd", "zstd-one-chunk"])
def test_copies_of_the_plugin_are_decoded(name: str) -> None:
    store = AIVEN / name / "store"
    variants = json.loads((AIVEN / "plugin-reads.json").read_text())["variants"]
    offsets = sum(each["metadata"]["end_offset"] + 1 - each["metadata"]["start_offset"] for each in variants[name]["segments"])
    document = audited(store, *KEY)
    assert sum(each["records_read"] for each in document["partitions"]) == offsets  # type: ignore[attr-defined]


def test_a_record_under_a_right_checksum_is_found_at_this_level_only(tmp_path: Path) -> None:
    good = [batch(offset, records=[record(b"value")]) for offset in range(5)]
    data = b"".join([*good[:3], with_bad_record(good[3]), good[4]])
    store = write_tier(tmp_path / "remote", "orders", 0, [Copy(0, data, ((0, 0),), b"")])
    run = in_json("tier audit", store, "--level", "records", *AS_OF)
    full = in_json("tier audit", store, *AS_OF)
    assert "tier-damaged-records" not in full.codes
    (found,) = [each for each in run.document["findings"] if each["code"] == "tier-damaged-records"]
    assert f"batch at byte {len(good[0]) * 3}: " in found["message"]
    assert (run.exit_code, found["severity"], found["offset"]) == (4, "damaged", 0)
    assert run.document["partitions"][0]["records_read"] == 4
    assert run.document["counts"]["damaged"] == 1


def test_the_first_of_several_damaged_batches_of_each_copy(tmp_path: Path) -> None:
    store = Path(shutil.copytree(TIERED / "remote", tmp_path / "remote"))
    first, second = sorted(store.rglob("*.log"))[:2]
    healthy = sorted((TIERED / "remote").rglob("*.log"))[:2]
    for path, places in ((first, (400, 30_000)), (second, (900,))):
        data = bytearray(path.read_bytes())
        for place in places:
            data[place] ^= 0xFF
        path.write_bytes(data)
    run = in_json("tier audit", store, "--level", "records", *AS_OF)
    found = [each for each in run.document["findings"] if each["code"] == "tier-damaged-records"]
    assert [each["offset"] for each in found] == [int(each.name[:20]) for each in (first, second)]
    assert "2 batches of it cannot be read, this is the first" in found[0]["message"]
    starts = [
        max(start for start in batch_positions(path) if start <= place) for path, place in ((healthy[0], 400), (healthy[1], 900))
    ]
    assert [f"batch at byte {start}: " in each["message"] for start, each in zip(starts, found, strict=True)] == [True, True]
    assert run.exit_code == 4


def test_a_limit_says_whose_records_were_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is used up by the check of records alone."""

    def stop(*_: object) -> None:
        raise LimitReachedError("enough")

    monkeypatch.setattr(record_check._SegmentCheck, "read", stop)
    run = in_json("tier audit", TIERED / "remote", "--level", "records", *AS_OF)
    (found,) = [each["message"] for each in run.document["findings"] if each["code"] == "tier-limit"]
    assert found.startswith("enough: the records of ")
    assert run.exit_code == 1


def test_workers_read_what_one_process_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings in the order of the copies, and each record once."""
    store = Path(shutil.copytree(TIERED / "remote", tmp_path / "remote"))
    for path in sorted(store.rglob("*.log"))[::3]:
        data = bytearray(path.read_bytes())
        data[900] ^= 0xFF
        path.write_bytes(data)
    line = ("tier audit", store, "--level", "records", "--as-of", "2026-11-21")
    here = in_json(*line, "--jobs", 1).document
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    pools = []
    started = schedule.WorkerPool

    def counted(*arguments: Any) -> Any:
        pools.append(arguments[3])
        return started(*arguments)

    monkeypatch.setattr(schedule, "WorkerPool", counted)
    there = in_json(*line, "--jobs", 2).document
    assert record_check._read_copies in pools
    for member in ("findings", "partitions", "totals", "exit_code"):
        assert there[member] == here[member]
    assert "tier-damaged-records" in {each["code"] for each in here["findings"]}
