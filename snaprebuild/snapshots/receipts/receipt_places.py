"""The default places of receipts, and which snapshots of a partition this program wrote by the receipts there.

A receipt that ``--receipt`` puts elsewhere has a link in the state directory. Receipts of another user or machine are not found.
A snapshot of ours is no evidence for the one that it was derived from.
"""

from __future__ import annotations

import datetime
import functools
import logging
import os
import secrets
from collections.abc import Iterator

import msgspec

from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at
from snaprebuild.storage.local.journal_file import link_journal
from snaprebuild.storage.local.log_dir_guard import log_dir_above
from snaprebuild.storage.local.process_settings import current_directory
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import is_object

__all__ = [
    "ReceiptFile",
    "can_be_written",
    "default_receipt_places",
    "listed_receipts",
    "new_receipt_name",
    "own_snapshots",
    "register_receipt",
    "state_directory",
]


log = logging.getLogger(__name__)

RECEIPTS_MAX = 1_000
"""Receipts that are read, the newest ones."""

RECEIPT_BYTES_MAX = 256 << 20
"""Size of a receipt that is read: about 700,000 snapshots."""

PREFIX = "snaprebuild-receipt-"

UNSEEN = "`undo --last` will not see this run, because the state directory of the user cannot be written to. Its receipt is %s"


def state_directory() -> str | None:
    """Where receipts go by default: ``snaprebuild`` in the state directory of the user; None for users without a home."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "snaprebuild") if os.path.isabs(home) else None


def default_receipt_places(out: str | None = None) -> list[str]:
    """Directories for receipts; the first one outside of log directories that can be written to gets them.

    It is the state directory of the user. Some users have no home that can be written to, as service accounts often do. Then it is
    ``--out``, or the current directory in place. Otherwise it is never ``--out``, which holds snapshots and nothing else.

    Args:
        out: the directory that the run writes to; None in place.
    """
    state = state_directory()
    last = current_directory() if out is None or is_object(out) else out
    return [place for place in (state, last) if place is not None]


def can_be_written(directory: str) -> bool:
    """Whether files can be made there, or the directory itself in the nearest one above it that exists. Never in a log directory."""
    if log_dir_above(directory) is not None:
        return False
    while not os.path.lexists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)


def new_receipt_name() -> str:
    """A name that no other receipt has. Names of later runs sort after those of earlier ones."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{PREFIX}{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}.jsonl"


def register_receipt(path: str) -> str | None:
    """Links a receipt that is elsewhere into the state directory, so that ``undo --last`` sees its run.

    Without the link the run goes on, and a warning says that its receipt must be named.

    Args:
        path: absolute path of the receipt, which is there.

    Returns:
        The link; None where none is needed, or none can be made.
    """
    directory = state_directory()
    has_usual_name = os.path.basename(path).startswith(PREFIX)
    if directory is None or not can_be_written(directory):
        if not has_usual_name:  # which the current directory is searched for
            log.warning(UNSEEN, path)
        return None
    if has_usual_name and os.path.realpath(os.path.dirname(path)) == os.path.realpath(directory):
        return None
    link = os.path.join(directory, new_receipt_name())
    try:
        link_journal(path, link)
    except (OSError, SnaprebuildError):
        log.warning(UNSEEN, path)
        return None
    return link


class _Announced(msgspec.Struct, frozen=True):
    """A snapshot that a receipt names, and the directory that it was written to."""

    target: str
    file: Fingerprint


def own_snapshots(directory: PartitionDir) -> frozenset[int]:
    """Offsets of the snapshots of a listing that a receipt names.

    That is the file as it was written, with its time, wherever the directory is now; or the same bytes where they were written.
    """
    if not directory.store.is_local:
        return frozenset()
    announced: dict[int, list[_Announced]] = {}
    for receipt in listed_receipts():
        for offset, each in _announced_in(receipt).get(directory.topic_partition, ()):
            announced.setdefault(offset, []).append(each)
    here = os.path.realpath(directory.path)
    return frozenset(offset for offset, _ in directory.snapshots if _is_one_of(directory, offset, announced.get(offset, []), here))


def _is_one_of(directory: PartitionDir, offset: int, announced: list[_Announced], here: str) -> bool:
    listed = directory.snapshot_at(offset)
    if not announced or listed is None:
        return False
    if all(each.file.size_bytes != listed.identity.size_bytes for each in announced):
        return False
    try:
        fingerprint = fingerprint_at(directory.file_path(listed.name))
    except ReadFailedError:
        return False
    return any(each.file == fingerprint or (each.target == here and each.file.sha256 == fingerprint.sha256) for each in announced)


class ReceiptFile(msgspec.Struct, frozen=True):
    """A receipt as it is now: a run that is at work appends to it."""

    path: str
    modified_ns: int
    size_bytes: int


def listed_receipts(*places: str, prefix: str = PREFIX, suffix: str = "") -> Iterator[ReceiptFile]:
    """Files with the names of receipts, the newest first.

    Args:
        places: directories; without any the default places.
        prefix: of the names.
        suffix: of the names.
    """
    receipts = []
    for place in places or default_receipt_places():
        try:
            with os.scandir(place) as entries:
                files = [entry for entry in entries if entry.is_file()]
        except OSError:
            continue
        names = [each.path for each in files if each.name.startswith(prefix) and each.name.endswith(suffix)]
        for path in names:
            try:
                status = os.stat(path)
            except OSError:
                continue
            if status.st_size <= RECEIPT_BYTES_MAX:
                receipts.append(ReceiptFile(path, status.st_mtime_ns, status.st_size))
    receipts.sort(key=lambda each: each.modified_ns, reverse=True)
    yield from receipts[:RECEIPTS_MAX]


@functools.lru_cache(maxsize=RECEIPTS_MAX)
def _announced_in(file: ReceiptFile) -> dict[str, list[tuple[int, _Announced]]]:
    """The snapshots of a receipt by topic-partition; none of one that cannot be read, or of another program."""
    from snaprebuild.snapshots.receipts.receipt_reader import read_receipt  # a run that only writes a receipt reads none

    announced_by_name: dict[str, list[tuple[int, _Announced]]] = {}
    try:
        receipt = read_receipt(file.path)
    except SnaprebuildError:
        return announced_by_name
    for written in receipt.files:
        if written.is_undone:
            continue
        for fingerprint in written.fingerprints:
            announced = _Announced(written.partition.target, fingerprint)
            announced_by_name.setdefault(written.partition.topic_partition, []).append((written.offset, announced))
    return announced_by_name
