"""The file that takes a repair of remote storage back, and the taking back.

JSON lines, each on the device before what it announces is done: a header, and for each copy, before its first write, the old manifest with
the keys, ETags and sizes of both objects. Taken back is the manifest alone, if it is still the one that the repair wrote: what was appended
to ``.indexes`` stays behind the indexes, where the old manifest does not look.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from formats.limits import MANIFEST_BYTES_MAX
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.aiven_key import AivenObject, parse_aiven_key
from snaprebuild import __version__
from snaprebuild.documents.file_facts import is_nameable
from snaprebuild.errors import OutcomeUnknownError, ReadFailedError, RefusedError, StorageError, UsageError, WriteFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.storage.local.document_file import JournalFile, check_new_place
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.store import FileIdentity, ReplacingStore, Store, WholeObject
from snaprebuild.storage.stores import replacing
from snaprebuild.tier.audit.result import AuditedCopy, AuditedPartition
from snaprebuild.tier.repair.copy_repair import CopyRepair, read_back

__all__ = ["AnnouncedRepair", "TierUndo", "UndoAction", "UndoFile", "UndoneRepair", "load_undo_file", "undo_repairs"]

SCHEMA = "snaprebuild.tier-undo/1"

LINE_BYTES_MAX = 2 * MANIFEST_BYTES_MAX
"""A manifest in base64 and some keys."""

_line = json.JSONEncoder(separators=(",", ":")).encode


class UndoFile:
    """The file of a run that repairs."""

    def __init__(self, path: str, root: str) -> None:
        """Takes what the header says; creates nothing."""
        self.path = os.path.abspath(path)
        self._root = root
        self._journal: JournalFile | None = None
        self._number = -1

    @property
    def is_there(self) -> bool:
        """Whether there was anything to announce, so that it was created."""
        return self._journal is not None

    def check_place(self) -> None:
        """Makes sure, as far as that can be told before, that the file can be created.

        Raises:
            RefusedError, WriteFailedError: it cannot.
        """
        check_new_place(self.path)

    def number(self) -> int:
        """Of the next copy."""
        self._number += 1
        return self._number

    def announce(self, number: int, partition: AuditedPartition, audited: AuditedCopy, repair: CopyRepair) -> None:
        """Called before the first write of a copy.

        Raises:
            WriteFailedError, RefusedError: the file cannot be written, so that nothing may be.
        """
        if self._journal is None:
            header = {"schema": SCHEMA, "snaprebuild": __version__, "began_ms": int(time.time() * 1000), "store": self._root}
            self._journal = JournalFile(self.path, _line(header))
        self._journal.append(
            _line(
                {
                    "step": "repair",
                    "number": number,
                    "topic": partition.topic,
                    "topic_id": uuid_to_text(partition.topic_id),
                    "partition": partition.partition,
                    "segment_id": uuid_to_text(audited.segment_id),
                    "start_offset": audited.start_offset,
                    "manifest": {
                        **_facts(repair.manifest_key, repair.manifest.identity),
                        "base64": base64.b64encode(repair.manifest.data).decode(),
                        "new_sha256": hashlib.sha256(repair.new_manifest).hexdigest(),
                    },
                    "indexes": {**_facts(repair.indexes_key, repair.indexes.identity), "appended_bytes": repair.place.size},
                }
            )
        )

    def settle(self, number: int) -> None:
        """That a copy is repaired. Not waited for, and no failure: without it, the manifest itself tells."""
        assert self._journal is not None
        with contextlib.suppress(WriteFailedError):
            self._journal.append(_line({"step": "repaired", "number": number}), sync=False)

    def close(self) -> None:
        """Ends the file of a run that came to its end.

        Raises:
            WriteFailedError: it cannot be written.
        """
        if self._journal is not None:
            try:
                self._journal.append(_line({"step": "end", "ended_ms": int(time.time() * 1000)}))
            finally:
                self._journal.close()


def _facts(key: str, identity: FileIdentity) -> dict[str, Any]:
    size, mtime_ns, mark = identity.row
    return {"key": key, "size_bytes": size, "mtime_ns": mtime_ns, "mark": mark}


# ---------------------------------------------------------------------------------------------------------------- taking back


@dataclass(frozen=True, slots=True)
class AnnouncedRepair:
    """A copy that a run came to repair.

    Attributes:
        topic: name; ``topic_id`` and ``segment_id`` as text, ``partition`` and ``start_offset`` as numbers.
        manifest_key: below the root.
        old_manifest: its bytes before.
        new_sha256: of those that the run was about to write.
    """

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    manifest_key: str
    old_manifest: bytes = field(repr=False)
    new_sha256: str


class UndoAction(StrEnum):
    """What became of a repair."""

    RESTORED = "restored"
    WOULD_RESTORE = "would-restore"
    """Dry run."""
    ABSENT = "absent"
    """There is nothing to take back."""
    LEFT = "left"
    """The manifest is neither the old one nor that of the repair."""
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class UndoneRepair:
    """One of them.

    Attributes:
        announced: by the run.
        action: what became of it.
        why: empty where it was taken back, or is to be.
    """

    announced: AnnouncedRepair
    action: UndoAction
    why: str = ""


@dataclass(slots=True)
class TierUndo:
    """All of a file.

    Attributes:
        root: location of the store.
        path: of the file.
        is_dry_run: nothing was written.
        copies: in the order of the file.
        findings: what was left alone, refused, or failed.
    """

    root: str
    path: str
    is_dry_run: bool
    copies: list[UndoneRepair] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def load_undo_file(path: str) -> tuple[str, list[AnnouncedRepair]]:
    """Reads the receipt of a run: the location of its store, and the repairs. Skips half a line at its end, which a killed run leaves.

    Raises:
        UsageError: no such file, or not one of ours; the line is named.
        ReadFailedError: it cannot be read.
    """
    store, found = "", []
    with open_named_file(path) as file:
        number = 0
        try:
            while line := file.readline(LINE_BYTES_MAX):
                number += 1
                if number > 1 and not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
                    break
                try:
                    read = json.loads(line)
                    if number == 1:
                        store = _store_of(read)
                    elif read["step"] == "repair":
                        found.append(_announced(read))
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError, binascii.Error):
                    what = "is no receipt of tier repair" if number == 1 else f"line {number}: is no line of such a receipt"
                    raise UsageError(what, path=path) from None
        except OSError as error:
            raise ReadFailedError(f"cannot be read: {error.strerror}", path=path, errno=error.errno) from error
    if not number:
        raise UsageError("is empty, and no receipt of tier repair", path=path)
    return store, found


def _store_of(header: dict[str, Any]) -> str:
    store = header["store"]
    if header["schema"] != SCHEMA or not isinstance(store, str) or not (store.startswith("s3://") or os.path.isabs(store)):
        raise ValueError(store)
    return store


def _announced(read: dict[str, Any]) -> AnnouncedRepair:
    manifest = read["manifest"]
    key = parse_aiven_key(manifest["key"])
    parts = manifest["key"].split("/")
    if (
        key is None
        or key.kind is not AivenObject.MANIFEST
        or any(part in (".", "..") for part in parts)
        or not is_nameable(str(key))
    ):
        raise ValueError(manifest["key"])
    return AnnouncedRepair(
        str(read["topic"]),
        str(read["topic_id"]),
        int(read["partition"]),
        str(read["segment_id"]),
        int(read["start_offset"]),
        str(key),
        base64.b64decode(manifest["base64"], validate=True),
        str(manifest["new_sha256"]),
    )


def undo_repairs(store: Store, root: str, announced: list[AnnouncedRepair], path: str, *, dry_run: bool) -> TierUndo:
    """Puts the old manifests back where those of the repair still stand.

    Args:
        store: that holds the objects.
        root: its location, absolute.
        announced: the repairs there, from ``load_undo_file``.
        path: of the file.
        dry_run: tell, and change nothing.

    Raises:
        RefusedError: the store would not honour conditions.
    """
    result = TierUndo(root, path, dry_run)
    writing = replacing(store)
    if announced and not dry_run:
        writing.prepare(root)
    for each in announced:
        location = f"{root}/{each.manifest_key}"
        try:
            undone = _undone(writing, location, each, dry_run=dry_run)
        except (RefusedError, StorageError) as error:
            action = UndoAction.REFUSED if isinstance(error, RefusedError) else UndoAction.FAILED
            action = UndoAction.UNKNOWN if isinstance(error, OutcomeUnknownError) else action
            undone = UndoneRepair(each, action, error.message)
            result.findings.append(finding_of_error(error, location))
        if undone.action is UndoAction.LEFT:
            result.findings.append(Finding("left-alone", Severity.FINDING, location, undone.why, each.start_offset))
        result.copies.append(undone)
    return result


def _undone(store: ReplacingStore, location: str, announced: AnnouncedRepair, *, dry_run: bool) -> UndoneRepair:
    found = store.read_whole(location, MANIFEST_BYTES_MAX)
    if found is None:
        return UndoneRepair(announced, UndoAction.ABSENT, "is gone: brokers have deleted the copy")
    if found.data == announced.old_manifest:
        return UndoneRepair(announced, UndoAction.ABSENT, "is the old one: taken back before, or never written")
    if hashlib.sha256(found.data).hexdigest() != announced.new_sha256:
        return UndoneRepair(announced, UndoAction.LEFT, "is neither the old one nor that of the repair, and stays")
    if dry_run:
        return UndoneRepair(announced, UndoAction.WOULD_RESTORE)
    _put_back(store, location, announced, found)
    return UndoneRepair(announced, UndoAction.RESTORED)


def _put_back(store: ReplacingStore, location: str, announced: AnnouncedRepair, found: WholeObject) -> None:
    store.replace(location, announced.old_manifest, found)
    read_back(store, location, announced.old_manifest)
