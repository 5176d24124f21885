"""``private_key`` with several keys: the manifest names the pair, and a copy under a key that was not given is not read, alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from encrypted_copies import KEY1, move_to_key, new_key
from in_process import in_json, snaprebuild
from manifests import FIXTURES

AIVEN = FIXTURES / "aiven-layout"
LONG_AGO = ("--as-of", "2026-11-20")


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


@pytest.mark.parametrize("level", ["full", "structure"])
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
        code, found, told = verdicts(store, "--set", f"private_key={keys[0]}", *keys[1:], "--level", level)
        assert (code, message in told) == (3, True), told
        assert found.pop(manifest.name[21:43]) == "not-read"
        assert "not-read" not in found.values()


def test_a_repair_goes_on_without_the_copy(rotated: tuple[Path, Path, Path], tmp_path: Path) -> None:
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
