"""``tier audit`` as a user runs it: every known corruption of the bundled stores is named, and nothing else."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, flip, tree
from manifests import AIVEN, FIXTURES, LONG_AGO, READS
from sentences import CHECKSUM_DIFFERS, FOUR_WRONG, OBJECTS_MISSING
from tiers import copied as copied_file

KEY = ("--set", f"private_key={AIVEN / 'keys' / 'key1.private.pem'}")

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
    """By corruption; where a partition does not begin at offset 0, or not all of it is there, nothing proves what is right.

    Of copies that follow one another, where retention has deleted what is below, those are consistent that nothing more confirms.
    """
    found = {}
    chains: dict[tuple[str, int], int] = {}
    ascending = sorted(variant["segments"], key=lambda each: each["metadata"]["start_offset"])
    starts = {(each["metadata"]["topic_id"], each["metadata"]["partition"], each["metadata"]["start_offset"]) for each in ascending}
    ends: dict[tuple[str, int], int] = {}
    for segment in ascending:
        reported = segment["metadata"]
        place = reported["topic_id"], reported["partition"]
        is_lowest = place not in chains
        is_proven = chains.get(place, 0) == reported["start_offset"]
        if is_proven:
            chains[place] = reported["end_offset"] + 1
        else:
            chains.setdefault(place, -1)
        is_followed = (*place, reported["end_offset"] + 1) in starts
        is_following = ends.get(place) == reported["start_offset"]
        if is_lowest or is_following:
            ends[place] = reported["end_offset"] + 1
        verdict = "consistent" if is_following or (is_lowest and is_followed) else "unproven"
        found[reported["segment_id"]] = VERDICTS[segment["disease"]] if is_proven or segment["disease"] else verdict
    return found


@pytest.mark.parametrize("name", sorted(READS["variants"]))
def test_every_corruption_is_reported(name: str) -> None:
    variant = READS["variants"][name]
    before = tree(AIVEN / variant["store"])
    run = in_json("tier audit", AIVEN / variant["store"], *LONG_AGO, *(KEY if "encrypted" in name else ()))
    assert verdicts(run.document) == expected(variant)
    diseased = sum(segment["disease"] is not None for segment in variant["segments"])
    assert run.codes.get("tier-wrong-snapshot", 0) == diseased
    assert run.exit_code == int(bool(diseased) or "unproven" in expected(variant).values())
    assert tree(AIVEN / variant["store"]) == before


def test_producers_that_differ_are_those_that_differ() -> None:
    """By the right entries, which Kafka's own classes gave, and those that the store has."""
    variant = READS["variants"]["diseased"]
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


def test_encrypted_segments_need_their_key() -> None:
    store = AIVEN / "diseased-encrypted" / "store"
    run = in_json("tier audit", store, *LONG_AGO)
    assert run.exit_code == 3
    assert "is encrypted for the key 'key1': the setting private_key names the file" in run.messages("refused")
    assert sorted(verdicts(run.document).values()) == ["not-read", "zero-bytes"]


@pytest.mark.parametrize("name", ["plain", "diseased", "diseased-encrypted"])
def test_structure_reads_no_segment(name: str) -> None:
    """Snapshots that contradict those next to them are the corrupt ones, and no others."""
    variant = READS["variants"][name]
    options = ("--level", "structure", *(KEY if "encrypted" in name else ()))
    run = in_json("tier audit", AIVEN / variant["store"], *LONG_AGO, *options)
    corruptions = {segment["metadata"]["segment_id"]: segment["disease"] for segment in variant["segments"]}
    reported = {None: "unproven", "zero-bytes": "zero-bytes"}
    assert verdicts(run.document) == {each: reported.get(corruption, "suspect") for each, corruption in corruptions.items()}
    count = sum(corruption not in reported for corruption in corruptions.values())
    assert run.codes.get("tier-suspect-snapshot", 0) == count
    assert run.exit_code == int(any(corruptions.values()))
    assert all(
        partition["read_bytes"] == 0 and partition["replayed_from_offset"] is None for partition in run.document["partitions"]
    )
    copies = {copy["segment_id"]: copy for partition in run.document["partitions"] for copy in partition["copies"]}
    for segment in variant["segments"]:
        entries = None if segment["disease"] == "zero-bytes" else segment["golden"]["producer_snapshot_entries"]["count"]
        assert copies[segment["metadata"]["segment_id"]]["entries"] == entries


@pytest.mark.parametrize("level", ["full", "structure"])
def test_a_snapshot_that_no_broker_could_load_ends_nothing(tmp_path: Path, level: str) -> None:
    """It has more bytes than are ever read of one."""
    shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "remote")
    (path,) = (tmp_path / "remote").rglob("00000000000000002181-*.snapshot")
    os.truncate(path, 3 << 30)
    run = in_json("tier audit", tmp_path / "remote", *LONG_AGO, "--level", level)
    assert (run.exit_code, run.document["totals"]["corrupt"]) == (4, 1)
    assert "bytes, found 3221225472" in run.messages("tier-wrong-snapshot")
    assert list(verdicts(run.document).values()).count("right" if level == "full" else "unproven") == 11


def test_the_metadata_log_shows_what_is_live() -> None:
    """Without it all copies are taken for live, and the end of a segment is that of its last batch."""
    remote = FIXTURES / "tiered-local" / "remote"
    run = in_json("tier audit", remote, *LONG_AGO, "--metadata-log", FIXTURES / "tiered-local" / "logs")
    assert (run.exit_code, run.document["totals"]["right"], run.document["verified"]) == (0, 12, True)
    run = in_json("tier audit", remote, *LONG_AGO)
    assert (run.exit_code, run.document["totals"]["right"], run.document["verified"]) == (0, 12, False)
    other = in_json("tier audit", AIVEN / "plain" / "store", *LONG_AGO, "--metadata-log", FIXTURES / "tiered-local" / "logs")
    assert (other.exit_code, other.codes, other.document["partitions"]) == (1, {"tier-orphan": 4}, [])


def test_a_damaged_segment_ends_what_can_be_judged(tmp_path: Path) -> None:
    shutil.copytree(AIVEN / "plain" / "store", tmp_path / "store")
    (log,) = (tmp_path / "store").rglob("mixed-*/0/00000000000000000583-*.log")
    data = bytearray(log.read_bytes())
    data[40_000] ^= 1
    log.write_bytes(data)
    run = in_json("tier audit", tmp_path / "store", *LONG_AGO)
    assert (run.exit_code, run.codes["bad-checksum"]) == (4, 1)
    log.write_bytes(data[:40_000])
    run = in_json("tier audit", tmp_path / "store", *LONG_AGO)
    assert run.exit_code == 4
    assert "its chunks have 65509 bytes, and its .log has 40000" in run.messages("tier-bad-copy")
    assert verdicts(run.document)[log.name[21:43]] == "not-read"


def test_a_flipped_bit_in_compressed_or_encrypted_chunks(tmp_path: Path) -> None:
    """Checksums of batches find chunks that decompress to something else."""
    for name, message in (("zstd", f"{CHECKSUM_DIFFERS}byte"), ("encrypted", "chunk: expected the content that its tag")):
        shutil.copytree(AIVEN / name / "store", tmp_path / name)
        log = sorted((tmp_path / name).rglob("*.log"))[0]
        data = bytearray(log.read_bytes())
        data[200] ^= 1
        log.write_bytes(data)
        run = in_json("tier audit", tmp_path / name, *LONG_AGO, *KEY)
        assert run.exit_code == 4, name
        assert message in run.messages("bad-checksum" if name == "zstd" else "damaged-file")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    shutil.copytree(AIVEN / "plain" / "store", tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("suffix", "level", "exit_code"), [("log", "full", 1), ("indexes", "structure", 1), ("rsm-manifest", "full", 1)]
)
def test_a_copy_that_lacks_an_object_is_a_row(plain: Path, suffix: str, level: str, exit_code: int) -> None:
    (path,) = plain.rglob(f"mixed-*/0/00000000000000001151-*.{suffix}")
    path.unlink()
    run = in_json("tier audit", plain, *LONG_AGO, "--level", level)
    (copy,) = [each for partition in run.document["partitions"] for each in partition["copies"] if each["start_offset"] == 1151]
    assert (copy["verdict"], copy["reason"]) == ("not-read", f"{OBJECTS_MISSING}{suffix}")
    assert run.exit_code == exit_code


@pytest.mark.parametrize(
    ("lost", "level"), [("00000000000000000000", "reachable"), ("00000000000000002181", "structure"), ("*", "full")]
)
def test_a_finished_copy_all_of_whose_objects_are_gone(tmp_path: Path, lost: str, level: str) -> None:
    """It has no place in the listing; everything above it lacks what it held."""
    shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "remote")
    for path in (tmp_path / "remote").rglob(f"{lost}-*.*"):
        path.unlink()
    options = (*LONG_AGO, "--metadata-log", FIXTURES / "tiered-local" / "logs", "--level", level)
    run = in_json("tier audit", tmp_path / "remote", *options)
    assert (run.exit_code, run.codes["tier-lost"]) == (4, 12 if lost == "*" else 1)
    assert "finished, and its objects are gone" in run.messages("tier-lost")
    copies = run.document["partitions"][0]["copies"]
    assert len(copies) == 12
    above = [each for each in copies if lost == "*" or each["start_offset"] >= int(lost)]
    assert (above[0]["verdict"], above[0]["reason"]) == ("not-read", "its objects are gone")
    # What is above is judged as in a store that begins there.
    assert [each["verdict"] for each in above if each["verdict"] not in ("not-read", "reach-unknown", "unproven")] in (
        [],
        ["right"],
    )


def copied(store: Path, start: int, letter: str) -> None:
    """Another copy of the segment, with an id of its own."""
    for path in sorted(store.rglob(f"mixed-*/{start:020d}-*")) + sorted(store.rglob(f"mixed-*/0/{start:020d}-*")):
        copied_file(path, letter)


@pytest.mark.parametrize("name", ["aiven-layout/plain/store", "tiered-local/remote"])
def test_two_copies_of_one_segment(tmp_path: Path, name: str) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "store")
    for start in (0, 1151):
        copied(tmp_path / "store", start, "Z")
    run = in_json("tier audit", tmp_path / "store", *LONG_AGO)
    before = in_json("tier audit", FIXTURES / name, *LONG_AGO).document["totals"]
    assert run.document["totals"] == {**before, "right": before["right"] + 2}
    assert (run.exit_code, set(run.codes)) == (int(bool(before["unproven"])), {"tier-unproven"} if before["unproven"] else set())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"id":"', '"id":"Z', "its manifest names the segment 'Z"),
        ('"topicId":"', '"topicId":"Z', "its manifest names the topic id 'Z"),
        ('"topic":"mixed"', '"topic":"fixed"', "its manifest names the topic 'fixed', and its key mixed"),
        ('"partition":0', '"partition":1', "its manifest names the partition 1, and its key 0"),
        ('"startOffset":583', '"startOffset":584', "its manifest names the start offset 584, and its key 583"),
    ],
)
def test_a_manifest_of_another_copy(plain: Path, old: str, new: str, message: str) -> None:
    (path,) = plain.rglob("mixed-*/0/00000000000000000583-*.rsm-manifest")
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    run = in_json("tier audit", plain, *LONG_AGO)
    assert (run.exit_code, run.codes["tier-bad-copy"]) == (4, 1)
    assert message in run.messages("tier-bad-copy")


def test_as_a_table() -> None:
    run = snaprebuild("tier", "audit", "fixtures/aiven-layout/diseased/store", *LONG_AGO)
    first, second, *_ = run.stdout.splitlines()
    assert first == f"{FOUR_WRONG} in 1 partition; which copies are live is unverified (--metadata-log)."
    assert second == "Snapshots: 2 right, 1 false-empty, 1 zero-bytes, 1 missing-producers, 1 wrong."
    assert "Next: snaprebuild tier repair " in run.text
    assert "mixed-0 aiven 6 381.2 KiB 2 right, 1 false-empty, 1 zero-bytes, 1 missing-producers, 1 wrong" in run.text
    assert "mixed-0 1805 missing-producers 21 of 23" in run.text
    assert "A follower that starts from it, of producer" in run.stderr


def test_what_is_read_is_reported_first() -> None:
    """tests/tier/test_audit_cost.py counts the requests."""
    store = AIVEN / "diseased" / "store"
    logs = list(store.rglob("*.log"))
    run = in_json("tier audit", store, *LONG_AGO)
    estimate = run.document["estimate"]
    assert (estimate["copies"], estimate["objects"]) == (len(logs), 2 * len(logs))
    assert (estimate["storage_classes"], estimate["dollars"]) == ({}, None)
    assert run.stderr.startswith(f"to be read: {len(logs)} copies, {2 * len(logs)} objects, ")
    places = [json.loads(path.read_text())["segmentIndexes"]["producerSnapshot"] for path in store.rglob("*.rsm-manifest")]
    small = in_json("tier audit", store, "--level", "structure").document["estimate"]
    sizes = [each["size"] for each in places]
    assert (small["requests"], small["read_bytes"]) == (sum(map(bool, sizes)), sum(sizes))


def test_a_selection() -> None:
    run = in_json("tier audit", AIVEN / "plain" / "store", *LONG_AGO, "--topic", "mix*", "--partition", "0")
    assert {each["topic"] for each in run.document["partitions"]} == {"mixed"}
    assert run.document["estimate"]["copies"] == len(run.document["partitions"][0]["copies"])


def test_a_reachable_snapshot_is_judged_and_no_other() -> None:
    """By a local log start, and by a log directory; the last copy is judged whatever was said, as a follower may always start there."""
    store = AIVEN / "diseased" / "store"
    run = in_json("tier audit", store, *LONG_AGO, "--level", "reachable", "--local-log-start", "mixed-0=2000")
    found = [copy["verdict"] for copy in run.document["partitions"][0]["copies"]]
    # What ``--level structure`` shows of the others, this level shows, too.
    assert found == ["unreachable", "suspect", "zero-bytes", "missing-producers", "wrong", "right"]
    assert (run.exit_code, run.codes, run.document["partitions"][0]["local_log_start_offset"]) == (
        1,
        {"tier-wrong-snapshot": 3, "tier-suspect-snapshot": 1},
        2000,
    )
    above = in_json("tier audit", store, *LONG_AGO, "--level", "reachable", "--local-log-start", "mixed-0=99999")
    found = [copy["verdict"] for copy in above.document["partitions"][0]["copies"]]
    assert (above.exit_code, found) == (1, ["unreachable", "suspect", "zero-bytes", "suspect", "suspect", "right"])
    remote, logs = FIXTURES / "tiered-local" / "remote", FIXTURES / "tiered-local" / "logs"
    reported = in_json("tier audit", remote, *LONG_AGO, "--level", "reachable", "--log-dir", logs, "--metadata-log", logs)
    first = min(int(path.name[:20]) for path in logs.rglob("mixed-0/*.log"))
    assert (reported.exit_code, reported.document["partitions"][0]["local_log_start_offset"]) == (0, first)


def test_a_repair_is_proposed_only_where_it_would_act(plain: Path, tmp_path: Path) -> None:
    """Not for LocalTieredStorage, not above a gap, and not where nothing proves what is right."""
    acts = snaprebuild("tier", "audit", AIVEN / "diseased" / "store", *LONG_AGO)
    assert "tier repair" in acts.stdout
    shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "local")
    (snapshot,) = (tmp_path / "local").rglob("00000000000000002181-*.snapshot")
    snapshot.write_bytes(EMPTY_SNAPSHOT)
    shutil.copytree(AIVEN / "diseased" / "store", tmp_path / "above")
    for path in sorted((tmp_path / "above").rglob("00000000000000000000-*")):
        path.unlink()
    for store in (tmp_path / "local", tmp_path / "above"):
        run = snaprebuild("tier", "audit", store, *LONG_AGO)
        assert (run.exit_code, "tier repair" in run.stdout) == (1, False)
        assert in_json("tier audit", store, *LONG_AGO).document["status"] in ("wrong", "damaged")
        dry = in_json("tier repair", store, *LONG_AGO, "--allow-unverified", "--dry-run")
        assert dry.document["totals"]["would-repair"] == 0
    cheaper = snaprebuild("tier", "audit", AIVEN / "diseased" / "store", *LONG_AGO, "--level", "structure")
    assert "Next: snaprebuild tier audit" in cheaper.text


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_damaged_metadata_log_gets_one_answer(tmp_path: Path, is_damaged: bool) -> None:
    """``verified`` of every verb that reads it."""
    shutil.copytree(FIXTURES / "tiered-local", tmp_path / "tier")
    remote, logs = tmp_path / "tier" / "remote", tmp_path / "tier" / "logs"
    if is_damaged:
        for path in logs.rglob("__remote_log_metadata-*/*.log"):
            if path.stat().st_size:
                flip(path, path.stat().st_size - 5)
    log = ("--metadata-log", logs)
    runs = [
        in_json("tier inventory", remote, *log),
        in_json("tier audit", remote, *LONG_AGO, *log, "--level", "structure"),
        in_json("tier repair", remote, *LONG_AGO, *log, "--dry-run"),
        in_json("follower plan", remote, logs, *log),
        in_json("follower offsets", remote, logs, *log),
        in_json("follower check", remote, logs, *LONG_AGO, *log),
    ]
    assert {run.document["verified"] for run in runs} == {not is_damaged}


def test_structure_takes_copies_to_end_where_the_next_begins(tmp_path: Path) -> None:
    """Without a metadata log; several copies of one segment are not compared, which is said."""
    remote = tmp_path / "remote"
    shutil.copytree(FIXTURES / "tiered-local" / "remote", remote)
    healthy = in_json("tier audit", remote, *LONG_AGO, "--level", "structure")
    assert (healthy.exit_code, set(verdicts(healthy.document).values()), healthy.codes) == (0, {"unproven"}, {})
    (snapshot,) = remote.rglob("00000000000000002181-*.snapshot")
    snapshot.write_bytes(EMPTY_SNAPSHOT)
    run = in_json("tier audit", remote, *LONG_AGO, "--level", "structure")
    assert (run.exit_code, verdicts(run.document)[snapshot.name[21:43]]) == (1, "suspect")
    for path in sorted(remote.rglob("00000000000000002181-*")):
        copied_file(path, "Z")
    run = in_json("tier audit", remote, *LONG_AGO, "--level", "structure")
    assert run.codes["tier-not-compared"] == 1
    assert "2 snapshots not compared with others" in run.messages("tier-not-compared")


def test_texts_about_remote_storage_name_no_disk(tmp_path: Path) -> None:
    """Neither findings nor reasons speak of a disk or of compaction."""
    shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "remote")
    for start in ("00000000000000001662", "00000000000000003664"):
        for path in sorted((tmp_path / "remote").rglob(f"{start}-*")):
            path.unlink()
    (log,) = (tmp_path / "remote").rglob("00000000000000004695-*.log")
    flip(log, 3000)
    run = in_json("tier audit", tmp_path / "remote", *LONG_AGO)
    texts = [each["message"] for each in run.document["findings"]]
    texts += [copy["reason"] for each in run.document["partitions"] for copy in each["copies"]]
    assert run.exit_code == 4
    assert not [text for text in texts if "on disk" in text or "compact" in text]
    found = [copy["verdict"] for copy in run.document["partitions"][0]["copies"]]
    assert found[:3] == ["right"] * 3
    assert "not-read" not in found
