"""An upload that is stopped before or after any call to the store: what is there is told, and the next run finishes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiven_reader import NAME, read_copies
from log_dirs import batch, copy_of, make_log_dir
from object_store import ObjectStore
from uploads import files, upload
from watched_store import Calls, CrashError

from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3 import store as s3
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.stores import store_of
from snaprebuild.tier.inventory import CopyState, tier_inventory
from snaprebuild.tier.upload.model import TierUpload

CLAIM = ".snaprebuild-claims/"
KINDS = ("log", "indexes", "rsm-manifest")


def check_what_is_told(objects: dict[str, bytes], root: str, settings: S3Settings) -> None:
    """The inventory beside a listing of one's own."""
    kinds: dict[str, set[str]] = {}
    for key in objects:
        match = NAME.fullmatch(key)
        if match is not None:
            kinds.setdefault(match[5], set()).add(match[6])
    claims = {key for key in objects if key.startswith(CLAIM)}
    if not kinds and not claims:
        return
    inventory = tier_inventory(store_of(root, settings), root)
    told = {copy.segment_id: copy for partition in inventory.partitions for copy in partition.copies}
    assert len(told) == len(kinds)
    states = Counter(copy.state for copy in told.values())
    whole = sum(len(each) == 3 for each in kinds.values())
    assert states == Counter({CopyState.UNVERIFIED: whole, CopyState.UNREADABLE: len(kinds) - whole}) - Counter()
    missing = sorted(tuple(copy.missing) for copy in told.values())
    assert missing == sorted(tuple(kind for kind in KINDS if kind not in each) for each in kinds.values())
    assert len(inventory.unknown.claims) == len(claims)
    messages = [each.message for each in inventory.findings if each.code == "tier-claim"]
    assert len(messages) == bool(claims)
    if claims:
        assert messages[0].startswith(f"{len(claims)} claim")
        assert (f"{len(claims) - whole} of them without a complete copy" in messages[0]) == (len(claims) > whole)
    # Nobody reads what has no manifest, and what has one is whole.
    assert len(read_copies(objects)) == whole


def check_finished(before: dict[str, bytes], after: dict[str, bytes], logs: Path, result: TierUpload) -> None:
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
    assert Counter(calls.names)["create"] == 8, "claim, segment, indexes and manifest of two segments"
    stops = set()
    for number in range(calls.count):
        for is_done in (False, True):
            root = tmp_path / f"{number}-{is_done}"
            with pytest.raises(CrashError):
                upload(logs, str(root), settings, Calls(number, is_done=is_done))
            before = files(root) if root.exists() else {}
            stops.add(tuple(sorted(key.rpartition(".")[2] for key in before)))
            check_what_is_told(before, str(root), settings)
            result = upload(logs, str(root), S3Settings(run="second"))
            check_finished(before, files(root), logs, result)
    assert len(stops) == 9, "nothing, and each of eight objects more"


@pytest.mark.parametrize("kind", ["log", "indexes"])
@pytest.mark.parametrize("name", ["log", "index", "timeindex", "txnindex"])
def test_a_local_file_that_changes_on_the_way(tmp_path: Path, kind: str, name: str) -> None:
    """Behind the segment or the indexes: there is no manifest then."""
    logs, root = copy_of("kafka4-mixed", tmp_path) / "deleted-0", tmp_path / "store"

    class Touching(Calls):
        def __call__(self, called: str, call: Callable[[], Any]) -> Any:
            result = super().__call__(called, call)
            if list(root.rglob(f"*.{kind}")):
                (logs / f"{0:020d}.{name}").touch()
            return result

    result = upload(logs, str(root), S3Settings(run="first"), Touching())
    assert [each.action for each in result.partitions[0].segments] == ["refused", "behind"]
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
    """Before it has its name: what is left of it has a name that nobody knows, and goes with the next run."""
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
    check_what_is_told(before, str(root), S3Settings())
    result = upload(logs, str(root), S3Settings(run="second"))
    assert not [key for key in files(root) if key.endswith(".snaprebuild-tmp")]
    check_finished(before, files(root), logs, result)


# ---------------------------------------------------------------------------------------------------------------- a real store

PART_BYTES = 5 << 20
"""The least that S3 takes."""


def large_partition(root: Path) -> Path:
    """One closed segment of two parts; its indexes are empty, which contradicts nothing."""
    data = b"".join(batch(offset, payload_bytes=1 << 20, timestamp=offset + 1) for offset in range(6))
    make_log_dir(root, replication_offset_checkpoint="0\n1\nt 0 6\n", recovery_points={"t-0": 6})
    directory = root / "t-0"
    directory.mkdir()
    for base, content in ((0, data), (6, b"")):
        (directory / f"{base:020d}.log").write_bytes(content)
        for suffix in ("index", "timeindex"):
            (directory / f"{base:020d}.{suffix}").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: pnG54XS0SyKCbPV6BzO-OQ")
    return directory


class Requests:
    """Counts what is sent to object stores by a client, and ends the run before a request is sent or after it was answered."""

    def __init__(self, crash_at: int | None = None, *, is_done: bool = False) -> None:
        self.names: list[str] = []
        self._crash_at, self._is_done = crash_at, is_done

    def watch(self, settings: S3Settings) -> None:
        for attempts in (1, s3_requests.ATTEMPTS):
            events = s3_requests.client_of(settings, attempts).meta.events
            events.register("before-call.s3", lambda model, **_: self._before(model.name))
            events.register("after-call.s3", lambda **_: self._after())

    def _before(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self._crash_at and not self._is_done:
            raise CrashError

    def _after(self) -> None:
        if len(self.names) - 1 == self._crash_at:
            raise CrashError


@pytest.mark.s3
def test_a_crash_at_every_request(tmp_path: Path, object_store: ObjectStore) -> None:
    """Before and after each one that changes something; behind one that does not, nothing is other than before the next."""
    logs = large_partition(tmp_path / "logs")
    location = f"s3://{object_store.bucket()}"
    requests = Requests()
    settings = S3Settings(run="whole")
    requests.watch(settings)
    result = upload(logs, f"{location}/whole", settings, part_bytes=PART_BYTES)
    check_finished({}, object_store.files(f"{location}/whole"), logs, result)
    assert Counter(requests.names)["UploadPart"] == 3, "two, and the one of the probe"
    sent_again = []
    for number, name in enumerate(requests.names):
        for is_done in (False, True) if not name.startswith(("Head", "Get", "List")) else ():
            root, crashing = f"{location}/{number}-{is_done}", S3Settings(run=f"crash-{number}-{is_done}")
            Requests(number, is_done=is_done).watch(crashing)
            with pytest.raises(CrashError):
                upload(logs, root, crashing, part_bytes=PART_BYTES)
            before = without_probes(object_store.files(root))
            check_what_is_told(before, root, crashing)
            again, settings = Requests(), S3Settings(run=f"again-{number}-{is_done}")
            again.watch(settings)
            result = upload(logs, root, settings, part_bytes=PART_BYTES)
            check_finished(before, without_probes(object_store.files(root)), logs, result)
            sent_again.append(Counter(again.names)["UploadPart"])
    # Both parts, or the second one, or none once the object is there. And the probe's own, where the run that was killed had not come so
    # far: a process asks each place once.
    assert set(sent_again) == {0, 1, 2, 3}
    uploads = object_store.client.list_multipart_uploads(Bucket=location.removeprefix("s3://")).get("Uploads", [])
    assert all(s3.PROBE_NAME in each["Key"] for each in uploads), "only those of probes that were killed"


def without_probes(found: dict[str, bytes]) -> dict[str, bytes]:
    return {key: data for key, data in found.items() if not key.startswith(s3.PROBE_NAME)}
