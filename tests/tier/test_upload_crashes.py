"""An upload that is stopped before or after any call to the store: what is there is reported, and the next run finishes it."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiven_reader import NAME, read_copies
from log_dirs import copy_of
from sentences import WITHOUT_A_COMPLETE_COPY
from uploads import files, upload
from watched_store import Calls, CrashError

from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.store_path import StorePath, store_of
from snaprebuild.tier.inventory.inventory import tier_inventory
from snaprebuild.tier.remote_store import CopyState, StoreAccess
from snaprebuild.tier.upload.model import StoreUpload

CLAIM = ".snaprebuild-claims/"
KINDS = ("log", "indexes", "rsm-manifest")


def check_what_is_reported(objects: dict[str, bytes], root: str, settings: S3Settings) -> None:
    """The inventory next to a listing of one's own."""
    kinds: dict[str, set[str]] = {}
    for key in objects:
        match = NAME.fullmatch(key)
        if match is not None:
            kinds.setdefault(match[5], set()).add(match[6])
    claims = {key for key in objects if key.startswith(CLAIM)}
    if not kinds and not claims:
        return
    inventory, findings = tier_inventory(StoreAccess(StorePath(store_of(root, settings), root)))
    reported = {copy.segment_id: copy for partition in inventory.partitions for copy in partition.copies}
    assert len(reported) == len(kinds)
    states = Counter(copy.state for copy in reported.values())
    whole = sum(len(each) == 3 for each in kinds.values())
    assert states == Counter({CopyState.UNVERIFIED: whole, CopyState.UNREADABLE: len(kinds) - whole}) - Counter()
    missing = sorted(tuple(copy.missing) for copy in reported.values())
    assert missing == sorted(tuple(kind for kind in KINDS if kind not in each) for each in kinds.values())
    messages = [each.message for each in findings if each.code == "tier-claim"]
    assert len(messages) == bool(claims)
    if claims:
        assert messages[0].startswith(f"{len(claims)} claim")
        assert (f"{len(claims) - whole} of them {WITHOUT_A_COMPLETE_COPY}" in messages[0]) == (len(claims) > whole)
    # No one reads what has no manifest, and what has one is whole.
    assert len(read_copies(objects)) == whole


def check_finished(before: dict[str, bytes], after: dict[str, bytes], logs: Path, result: StoreUpload) -> None:
    """All segments, each once, as copies of the claims; nothing that was there is another."""
    assert {key: after[key] for key in before} == before
    copies = read_copies(after)
    bases = sorted(int(path.stem) for path in logs.rglob("*.log"))[:-1]
    assert [copy.base_offset for copy in copies] == bases
    claims = {json.loads(data)["segment_id"] for key, data in after.items() if key.startswith(CLAIM)}
    assert {copy.segment_id for copy in copies} == claims
    assert len(after) == 4 * len(bases)
    assert [each.segment.start_offset for each in result.copies] == bases
    for copy in copies:
        assert copy.segment == next(logs.rglob(f"{copy.base_offset:020d}.log")).read_bytes()


@pytest.mark.full
def test_a_crash_at_every_call_of_a_directory(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path) / "deleted-0"
    calls = Calls()
    settings = S3Settings(run="first")
    result = upload(logs, str(tmp_path / "whole"), settings, calls)
    check_finished({}, files(tmp_path / "whole"), logs, result)
    created = Counter(calls.names)
    assert (created["create"], created["create_large"]) == (6, 2), "claim, indexes and manifest of two segments; the segments"
    stops = set()
    for number in range(calls.count):
        for is_done in (False, True):
            root = tmp_path / f"{number}-{is_done}"
            with pytest.raises(CrashError):
                upload(logs, str(root), settings, Calls(number, is_done=is_done))
            before = files(root) if root.exists() else {}
            stops.add(tuple(sorted(key.rpartition(".")[2] for key in before)))
            check_what_is_reported(before, str(root), settings)
            result = upload(logs, str(root), S3Settings(run="second"))
            check_finished(before, files(root), logs, result)
    assert len(stops) == 9, "nothing, and each of eight objects more"


@pytest.mark.parametrize(("kind", "name"), [("log", "log"), ("log", "index"), ("indexes", "log"), ("indexes", "txnindex")])
def test_a_local_file_that_changes_on_the_way(tmp_path: Path, kind: str, name: str) -> None:
    """After the segment or the indexes: there is no manifest then."""
    logs, root = copy_of("kafka4-mixed", tmp_path) / "deleted-0", tmp_path / "store"

    class Touching(Calls):
        def __call__(self, called: str, call: Callable[[], Any]) -> Any:
            result = super().__call__(called, call)
            if list(root.rglob(f"*.{kind}")):
                (logs / f"{0:020d}.{name}").touch()
            return result

    result = upload(logs, str(root), S3Settings(run="first"), Touching())
    assert [each.action for each in result.partitions[0].segments] == ["refused", "held-back"]
    (finding,) = [each for each in result.findings if each.code == "tier-upload-refused"]
    assert finding.path.endswith(f".{name}")
    assert "(changed)" in finding.message
    # A segment that changed is noticed when its last block was sent, before anything else is.
    sent = {"json", "log"} if name == kind == "log" else {"json", "log", "indexes"}
    assert {key.rpartition(".")[2] for key in files(root)} == sent
    result = upload(logs, str(root), S3Settings(run="second"))
    check_finished({}, files(root), logs, result)


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_inside_of_a_file(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it has its name: what is left of it has an unknown name, and goes with the next run."""
    from snaprebuild.storage.local import publish

    logs, root = copy_of("kafka4-mixed", tmp_path) / "deleted-0", tmp_path / "store"
    named = publish._give_name

    def crash(place: Any, temporary_name: str, name: str, fd: int) -> bool:
        if name.endswith(kind):
            raise CrashError
        return named(place, temporary_name, name, fd)

    removed = publish.TemporaryFile.remove
    with monkeypatch.context() as patch:
        patch.setattr(publish, "_give_name", crash)
        patch.setattr(publish.TemporaryFile, "remove", lambda *_: True)  # as where the process is killed
        with pytest.raises(CrashError):
            upload(logs, str(root), S3Settings(run="first"))
    assert publish.TemporaryFile.remove is removed
    (left,) = [key for key in files(root) if key.endswith(".snaprebuild-tmp")]
    before = {key: data for key, data in files(root).items() if key != left}
    check_what_is_reported(before, str(root), S3Settings())
    result = upload(logs, str(root), S3Settings(run="second"))
    assert not [key for key in files(root) if key.endswith(".snaprebuild-tmp")]
    check_finished(before, files(root), logs, result)
