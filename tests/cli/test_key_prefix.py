"""Settings of the plugin: ``key_prefix``, which is no part of a name in any verb, and ``private_key`` with several keys."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from budgets import first_of
from command import Run, in_json, snaprebuild
from encrypted_copies import KEY1, move_to_key, new_key
from manifests import AIVEN, LONG_AGO
from object_store import ObjectStore
from same_result import without

PREFIX = "a/cold."
"""It is a directory, and the beginning of the names in it; plain names and plain directories follow the same rules."""


def prefixed(source: Path, root: Path, prefix: str) -> Path:
    """The objects of a store with a prefix before their keys."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            to = root / f"{prefix}{path.relative_to(source)}"
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    return root


def bucket_below(root: Path) -> Path:
    """Where the topics of a bundled store are."""
    return next(iter(root.rglob("*.rsm-manifest"))).parent.parent.parent


PLAIN = bucket_below(AIVEN / "plain" / "store")


def named(store: Path, prefix: str = PREFIX) -> list[tuple[object, ...]]:
    """The ways to name a prefix: by the setting, and in the location."""
    return [(store, "--set", f"key_prefix={prefix}"), (f"{store}/{prefix}",)]


def partitions_of(run: Run) -> Any:
    """Without the times and inodes of files."""
    return without(run.document["partitions"], ("age_ms", "modified_ms", "modified_ns", "inode"))


@pytest.mark.parametrize(
    ("verb", "prefix"),
    [("tier inventory", "cold-"), ("tier inventory", "a/cold."), ("tier inventory", "tier/"), ("tier audit", "a/cold.")],
)
def test_both_ways_to_name_it_give_the_same(tmp_path: Path, verb: str, prefix: str) -> None:
    store = prefixed(PLAIN, tmp_path / "store", prefix)
    (store / "others-AAAAAAAAAAAAAAAAAAAAAA").mkdir(parents=True)
    options = LONG_AGO if verb == "tier audit" else ()
    plain = in_json(verb, PLAIN, *options)
    for arguments in named(store, prefix):
        run = in_json(verb, *arguments, *options)
        assert run.exit_code == plain.exit_code
        assert partitions_of(run) == partitions_of(plain)


def test_objects_with_other_prefixes_are_not_looked_at(tmp_path: Path) -> None:
    store = prefixed(PLAIN, tmp_path / "store", "cold-")
    shutil.copytree(bucket_below(AIVEN / "zstd" / "store"), store, dirs_exist_ok=True)
    run = in_json("tier inventory", store, "--set", "key_prefix=cold-")
    assert partitions_of(run) == partitions_of(in_json("tier inventory", PLAIN))
    nothing = snaprebuild("tier", "inventory", store, "--set", "key_prefix=hot-")
    assert (nothing.exit_code, "no copy of a segment" in nothing.stderr) == (2, True)


def test_a_directory_wins_over_a_prefix(tmp_path: Path) -> None:
    store = prefixed(PLAIN, tmp_path / "store", "cold-")
    shutil.copytree(bucket_below(AIVEN / "epochs" / "store"), store / "cold-")
    run = in_json("tier inventory", store / "cold-")
    expected = in_json("tier inventory", bucket_below(AIVEN / "epochs" / "store"))
    assert partitions_of(run) == partitions_of(expected)


def test_a_location_that_is_no_prefix_of_keys_is_not_there(tmp_path: Path) -> None:
    """The beginning of another directory's name is a typing error, not a prefix."""
    shutil.copytree(AIVEN / "plain" / "store", tmp_path / "store-of-may")
    run = snaprebuild("tier", "inventory", tmp_path / "store")
    assert (run.exit_code, run.stdout) == (2, "")


def test_a_follower_gets_the_directory_of_the_true_topic(tmp_path: Path) -> None:
    store = prefixed(PLAIN, tmp_path / "store", PREFIX)
    for number, (place, *option) in enumerate([(store,), *named(store)]):
        to = tmp_path / f"new{number}"
        to.mkdir()
        run = snaprebuild("follower", "build", place, to, "--topic-partition", "mixed-0", *option, *LONG_AGO)
        assert (run.exit_code, os.listdir(to)) == (0, ["mixed-0"]), run.stderr
        wrong = snaprebuild("follower", "build", place, to, "--topic-partition", "cold.mixed-0", *option, *LONG_AGO)
        assert wrong.exit_code != 0


def local_log(to: Path, mixed: dict[str, Any]) -> tuple[Path, int]:
    """An empty partition that begins with the newest copy, in ``to / "logs"``; and its first offset."""
    start = mixed["copies"][-1]["start_offset"]
    directory = to / "logs" / f"mixed-{mixed['partition']}"
    directory.mkdir(parents=True)
    (directory / f"{start:020d}.log").write_bytes(b"")
    return directory, start


def test_a_log_directory_is_matched(tmp_path: Path) -> None:
    """By the id in partition.metadata, whatever the key names the topic."""
    store = prefixed(PLAIN, tmp_path / "store", PREFIX)
    copies = in_json("tier inventory", PLAIN).document["partitions"]
    mixed = next(each for each in copies if each["topic"] == "mixed" and len(each["copies"]) > 1)
    directory, start = local_log(tmp_path, mixed)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {mixed['topic_id']}")
    options = ("--level", "reachable", "--log-dir", tmp_path / "logs", *LONG_AGO)
    for arguments in [(store,), *named(store)]:
        run = in_json("tier audit", *arguments, *options)
        found = [each["local_log_start_offset"] for each in run.document["partitions"] if each["topic_id"] == mixed["topic_id"]]
        assert start in found, json.dumps(run.document["findings"])


@pytest.mark.s3
def test_a_bucket_with_a_prefix(object_store: ObjectStore, tmp_path: Path) -> None:
    prefixed(PLAIN, tmp_path / "store", "cold-")
    bucket = object_store.bucket()
    object_store.upload(tmp_path / "store", f"s3://{bucket}")
    expected = partitions_of(in_json("tier inventory", PLAIN))
    for place, option in ((f"s3://{bucket}", ()), (f"s3://{bucket}", ("--set", "key_prefix=cold-")), (f"s3://{bucket}/cold-", ())):
        assert without(partitions_of(in_json("tier inventory", place, *option)), ("object_storage_classes",)) == without(
            expected, ("object_storage_classes",)
        )


# ---------------------------------------------------------------------------------------------------------------- two ids of one name

OTHER_ID = "BAAAAAAAQACAAAAAAAAAAA"


def with_second_id(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A store that has ``mixed`` twice, as after the topic was deleted and made again; and its own partition 0."""
    store = Path(shutil.copytree(PLAIN, tmp_path / "store"))
    partitions = in_json("tier inventory", PLAIN).document["partitions"]
    mixed: dict[str, Any] = next(each for each in partitions if each["topic"] == "mixed")
    own = store / f"mixed-{mixed['topic_id']}"
    other = Path(shutil.copytree(own, store / f"mixed-{OTHER_ID}"))
    for path in other.rglob("*.rsm-manifest"):
        path.write_text(path.read_text().replace(mixed["topic_id"], OTHER_ID))
    return store, mixed


@pytest.mark.parametrize("verb", ["tier inventory", "tier audit"])
def test_two_ids_of_one_name_are_distinguished(tmp_path: Path, verb: str) -> None:
    store, mixed = with_second_id(tmp_path)
    options = LONG_AGO if verb == "tier audit" else ()
    run = in_json(verb, store, *options)
    assert {each["topic_id"] for each in run.document["partitions"] if each["topic"] == "mixed"} == {mixed["topic_id"], OTHER_ID}
    table = "".join(snaprebuild(*verb.split(), store, *options).stdout.split())
    assert f"mixed-{mixed['partition']}({mixed['topic_id']})" in table
    assert f"mixed-{mixed['partition']}({OTHER_ID})" in table
    alone = snaprebuild(*verb.split(), PLAIN, *options).stdout
    assert mixed["topic_id"] not in alone


def test_a_log_directory_belongs_to_one_of_two_ids(tmp_path: Path) -> None:
    store, mixed = with_second_id(tmp_path)
    directory, start = local_log(tmp_path, mixed)
    options = ("--level", "reachable", *LONG_AGO)

    def starts() -> dict[str, int | None]:
        run = in_json("tier audit", store, "--log-dir", tmp_path / "logs", *options)
        return {each["topic_id"]: each["local_log_start_offset"] for each in run.document["partitions"] if each["topic"] == "mixed"}

    assert starts() == {mixed["topic_id"]: None, OTHER_ID: None}
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")
    assert starts() == {mixed["topic_id"]: None, OTHER_ID: start}
    by_name = snaprebuild("tier", "audit", store, "--local-log-start", f"mixed-{mixed['partition']}={start}", *options)
    assert (by_name.exit_code, "has several topic ids in remote storage" in by_name.stderr) == (2, True)


def test_a_follower_of_one_of_two_ids(tmp_path: Path) -> None:
    store, _ = with_second_id(tmp_path)
    (tmp_path / "new").mkdir()
    arguments = ("follower", "build", store, tmp_path / "new", "--topic-partition", "mixed-0", *LONG_AGO)
    run = snaprebuild(*arguments)
    assert (run.exit_code, "several topics called mixed" in run.stderr) == (2, True)
    run = snaprebuild(*arguments, "--topic-id", f"mixed={OTHER_ID}")
    assert run.exit_code == 0, run.stderr
    assert OTHER_ID in (tmp_path / "new" / "mixed-0" / "partition.metadata").read_text()


@pytest.fixture
def rotated(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A store whose last copy is under a second key pair; that copy's manifest; the second private key."""
    store = Path(shutil.copytree(AIVEN / "encrypted" / "store", tmp_path / "store"))
    manifest = sorted(store.rglob("*.rsm-manifest"))[-1]
    move_to_key(manifest, "key2", new_key(tmp_path / "key2.pem"))
    return store, manifest, tmp_path / "key2.pem"


def verdicts(store: Path, *options: object) -> tuple[int, dict[str, str], str]:
    run = in_json("tier audit", store, *LONG_AGO, *options)
    found = {copy["segment_id"]: copy["verdict"] for each in run.document["partitions"] for copy in each["copies"]}
    return run.exit_code, found, run.messages("refused") if "refused" in run.codes else ""


@pytest.mark.parametrize("level", first_of(["structure", "full"]))
def test_each_copy_is_read_with_the_key_that_its_manifest_names(rotated: tuple[Path, Path, Path], level: str) -> None:
    store, manifest, key2 = rotated
    expected = verdicts(AIVEN / "encrypted" / "store", "--set", f"private_key={KEY1}", "--level", level)
    pairs = ((f"key1={KEY1}", f"key2={key2}"), (KEY1, f"key2={key2}"), (key2, f"key1={KEY1}"))
    for keys in pairs[: 1 if level == "full" else 3]:
        options = [text for key in keys for text in ("--set", f"private_key={key}")]
        assert verdicts(store, *options, "--level", level) == expected
    for keys, message in (
        (
            (f"key1={KEY1}",),
            "is encrypted for the key 'key2': the setting private_key names the file of its private half (--set private_key=key2=FILE)",
        ),
        ((KEY1,), f"is encrypted for the key 'key2', and {KEY1} is another one: add --set private_key=key2=FILE"),
    ):
        code, found, reported = verdicts(store, "--set", f"private_key={keys[0]}", *keys[1:], "--level", level)
        assert (code, message in reported) == (3, True), reported
        assert found.pop(manifest.name[21:43]) == "not-read"
        assert "not-read" not in found.values()


def test_a_repair_continues_without_the_copy(rotated: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store, _, _ = rotated
    options = ("--receipt", tmp_path / "undo.jsonl", "--allow-unverified", *LONG_AGO)
    run = in_json("tier repair", store, "--set", f"private_key={KEY1}", *options)
    assert (run.exit_code, run.document["copies"]) == (3, [])
    assert "--set private_key=key2=FILE" in run.messages("refused")


def test_an_inventory_needs_no_key(rotated: tuple[Path, Path, Path]) -> None:
    run = in_json("tier inventory", rotated[0])
    assert run.exit_code == in_json("tier inventory", AIVEN / "encrypted" / "store").exit_code


def test_a_follower_is_refused_where_it_needs_the_copy(tmp_path: Path) -> None:
    store = Path(shutil.copytree(AIVEN / "diseased-encrypted" / "store", tmp_path / "store"))
    first, *_, last = sorted(store.rglob("*.rsm-manifest"))
    key = new_key(tmp_path / "key2.pem")
    move_to_key(last, "key2", key)
    (tmp_path / "new").mkdir()
    arguments = ("follower", "build", store, tmp_path / "new", "--topic-partition", "logappend-0", *LONG_AGO)
    run = snaprebuild(*arguments, "--set", f"private_key=key1={KEY1}")
    assert (run.exit_code, "--set private_key=key2=FILE" in run.stderr) == (3, True), run.stderr
    done = snaprebuild(*arguments, "--set", f"private_key=key1={KEY1}", "--set", f"private_key=key2={tmp_path / 'key2.pem'}")
    assert done.exit_code == 0, done.stderr
    # The replay that rebuilds its snapshot needs the copies below, too.
    move_to_key(first, "key3", key)
    (tmp_path / "other").mkdir()
    run = snaprebuild(*arguments[:3], tmp_path / "other", *arguments[4:], "--set", f"private_key=key2={tmp_path / 'key2.pem'}")
    assert (run.exit_code, "--set private_key=key3=FILE" in run.stderr) == (3, True), run.stderr


def test_a_path_with_an_equals_sign_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a=b.pem").write_bytes(KEY1.read_bytes())
    assert verdicts(AIVEN / "encrypted" / "store", "--set", f"private_key={tmp_path / 'a=b.pem'}")[0] == 0
