"""``tier audit`` as a user runs it: every disease of the bundled stores is named, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from log_dirs import tree
from manifests import FIXTURES
from object_store import ObjectStore

AIVEN = FIXTURES / "aiven-layout"
READS: dict[str, Any] = json.loads((AIVEN / "plugin-reads.json").read_text())
KEY = ("--private-key", AIVEN / "keys" / "key1.private.pem")
LONG_AGO = ("--as-of", "2026-11-20")
"""Before the records, so that nobody has expired."""

VERDICTS = {
    None: "right",
    "empty-10-bytes": "false-empty",
    "zero-bytes": "zero-bytes",
    "two-producers-missing": "missing-producers",
    "stale": "wrong",
}


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {copy["segment_id"]: copy["verdict"] for partition in document["partitions"] for copy in partition["copies"]}


def expected(variant: dict[str, Any]) -> dict[str, str]:
    """By disease; where a partition does not begin at offset 0, or not all of it is there, nothing proves what is right."""
    found = {}
    chains: dict[tuple[str, int], int] = {}
    for segment in sorted(variant["segments"], key=lambda each: each["metadata"]["start_offset"]):
        told = segment["metadata"]
        place = told["topic_id"], told["partition"]
        is_proven = chains.get(place, 0) == told["start_offset"]
        if is_proven:
            chains[place] = told["end_offset"] + 1
        found[told["segment_id"]] = VERDICTS[segment["disease"]] if is_proven or segment["disease"] else "unproven"
    return found


@pytest.mark.parametrize("name", sorted(READS["variants"]))
def test_every_disease_is_named(name: str) -> None:
    variant = READS["variants"][name]
    before = tree(AIVEN / variant["store"])
    run = in_json("tier audit", AIVEN / variant["store"], *LONG_AGO, *(KEY if "encrypted" in name else ()))
    assert verdicts(run.document) == expected(variant)
    diseased = sum(segment["disease"] is not None for segment in variant["segments"])
    assert run.codes.get("tier-wrong-snapshot", 0) == diseased
    assert run.exit_code == int(bool(diseased or "unsound-boundary" in run.codes))
    assert tree(AIVEN / variant["store"]) == before


@pytest.mark.parametrize("name", ["diseased", "diseased-zstd"])
def test_producers_that_differ_are_those_that_differ(name: str) -> None:
    """By the right entries, which Kafka's own classes gave, and those that the store has."""
    variant = READS["variants"][name]
    run = in_json("tier audit", AIVEN / variant["store"], *LONG_AGO)
    copies = {copy["segment_id"]: copy for partition in run.document["partitions"] for copy in partition["copies"]}
    for segment in variant["segments"]:
        copy = copies[segment["metadata"]["segment_id"]]
        if copy["entries"] is None:
            assert segment["disease"] == "zero-bytes"
            continue
        right = {entry["producer_id"] for entry in segment["right_snapshot"]["entries"]}
        assert copy["expected_entries"] == len(right)
        assert copy["entries"] == segment["golden"]["producer_snapshot_entries"]["count"]
        missing = {each["producer_id"] for each in copy["differences"] if each["kind"] == "missing"}
        assert len(missing) == max(copy["expected_entries"] - copy["entries"], 0) or segment["disease"] == "stale"
        assert missing <= right
        assert all(each["consequence"] for each in copy["differences"])


def test_encrypted_segments_need_their_key(tmp_path: Path) -> None:
    store = AIVEN / "diseased-encrypted" / "store"
    run = in_json("tier audit", store, *LONG_AGO)
    assert run.exit_code == 3
    assert "is encrypted for the key 'key1': --private-key names the file" in run.messages("refused")
    assert sorted(verdicts(run.document).values()) == ["not-read", "zero-bytes"]
    missing = snaprebuild("tier", "audit", store, "--private-key", tmp_path / "none.pem")
    assert (missing.exit_code, "the private key cannot be read" in missing.stderr) == (2, True)
    public = snaprebuild("tier", "audit", store, "--private-key", AIVEN / "keys" / "key1.public.pem")
    assert (public.exit_code, "expected an RSA key in PEM" in public.stderr) == (2, True)


def test_structure_reads_no_segment() -> None:
    run = in_json("tier audit", AIVEN / "diseased" / "store", "--level", "structure")
    assert (run.exit_code, run.codes) == (1, {"tier-wrong-snapshot": 1})
    assert run.document["totals"] == {**dict.fromkeys(run.document["totals"], 0), "zero-bytes": 1, "not-read": 5}
    assert {partition["bytes_read"] for partition in run.document["partitions"]} == {0}


def test_the_metadata_log_tells_what_is_live() -> None:
    """Without it the end of the last segment is not known, as no file of LocalTieredStorage tells it."""
    remote = FIXTURES / "tiered-local" / "remote"
    run = in_json("tier audit", remote, *LONG_AGO, "--metadata-log", FIXTURES / "tiered-local" / "logs")
    assert (run.exit_code, run.document["totals"]["right"], run.document["verified"]) == (0, 12, True)
    run = in_json("tier audit", remote, *LONG_AGO)
    assert (run.exit_code, run.document["totals"]["right"], run.codes) == (1, 11, {"tier-not-audited": 1})


def test_a_damaged_segment_ends_what_can_be_judged(tmp_path: Path) -> None:
    shutil.copytree(AIVEN / "plain" / "store", tmp_path / "store")
    (log,) = (tmp_path / "store").rglob("mixed-*/0/00000000000000000583-*.log")
    data = bytearray(log.read_bytes())
    data[40_000] ^= 1
    log.write_bytes(data)
    run = in_json("tier audit", tmp_path / "store", *LONG_AGO)
    assert run.exit_code != 0
    assert "bad-checksum" in run.codes or "damaged-segment" in run.codes
    log.write_bytes(data[:40_000])
    run = in_json("tier audit", tmp_path / "store", *LONG_AGO)
    assert run.exit_code == 4
    assert "chunks: expected 65509 bytes, found 40000" in run.messages("damaged-file")


def test_a_flipped_bit_in_compressed_or_encrypted_chunks(tmp_path: Path) -> None:
    """What decompresses to something else is found by the checksums of batches."""
    for name, message in (("zstd", "the checksum of the batch at byte"), ("encrypted", "chunk: expected what its tag says")):
        shutil.copytree(AIVEN / name / "store", tmp_path / name)
        log = sorted((tmp_path / name).rglob("*.log"))[0]
        data = bytearray(log.read_bytes())
        data[200] ^= 1
        log.write_bytes(data)
        run = in_json("tier audit", tmp_path / name, *LONG_AGO, *KEY)
        assert run.exit_code == 4, name
        assert message in run.messages("bad-checksum" if name == "zstd" else "damaged-file")


def test_as_a_table() -> None:
    run = snaprebuild("tier", "audit", "fixtures/aiven-layout/diseased/store", *LONG_AGO)
    lines = [" ".join(line.split()) for line in run.stdout.splitlines()]
    assert "mixed-0 aiven 6 381.2 KiB 2 right, 1 false-empty, 1 zero-bytes, 1 missing-producers, 1 wrong" in lines
    assert any(line.startswith("mixed-0 1805 YDVP_gXwTseKyv3ADnBRQA missing-producers 21 of 23") for line in lines)
    assert lines[-1].endswith("1 missing-producers, 1 wrong; which copies are live is unverified")
    assert "A follower that starts from it, of producer" in run.stderr


@pytest.mark.s3
def test_an_object_store_says_the_same(object_store: ObjectStore) -> None:
    store = AIVEN / "diseased-zstd" / "store"
    location = object_store.upload(store, f"s3://{object_store.bucket()}/tier")
    here, there = in_json("tier audit", store, *LONG_AGO), in_json("tier audit", location, *LONG_AGO)
    assert there.exit_code == here.exit_code == 1
    assert there.document["partitions"] == here.document["partitions"]
