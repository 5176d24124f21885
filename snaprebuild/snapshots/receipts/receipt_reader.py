"""A receipt as it is read, by ``undo``, ``verify --receipt`` and ``report``: nothing in it is trusted.

Names follow from offsets, and only from them. Half a line at the end is what a killed run leaves (``receipt`` tells how one is written).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from formats.limits import INT64_MAX
from formats.partition.file_names import snapshot_file_name
from formats.text_lines import shown
from snaprebuild.documents.json_values import is_nameable, whole
from snaprebuild.documents.run_facts import run_facts
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.replay.broker_start import LoadedLog
from snaprebuild.snapshots.receipts.receipt import SCHEMA
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.local.whole_file import aside_name
from snaprebuild.storage.log_dir import read_log_dir
from snaprebuild.storage.store import is_object

__all__ = ["PartitionReceipt", "WrittenFile", "WrittenReceipt", "load_receipt", "read_receipt"]

LINE_BYTES_MAX = 256 << 20
"""As of a saved plan: a partition of 2,000,000 segments is named in one line."""

ATTEMPTS_MAX = 100
"""At one snapshot: each is a run that was stopped before it could tell what became of it."""


@dataclass(frozen=True, slots=True)
class PartitionReceipt:
    """A partition that a run wrote to.

    Attributes:
        topic_partition: ``<topic>-<partition>``.
        source: directory of its segments.
        target: directory of the files, without links.
        log: the partition as a broker would have found it before the run; None where its log end could not be read.
        segments: (base offset, bytes) of each, ascending.
    """

    topic_partition: str
    source: str
    target: str
    log: LoadedLog | None
    segments: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class WrittenFile:
    """A snapshot that a run announced.

    Attributes:
        partition: where.
        offset: from its name.
        made: the file; None where the run only came to set the old one aside.
        made_before: files of other attempts at it, of which one may be there instead.
        snapshot_class: its class; None likewise.
        is_settled: the run told what became of it; else it was killed, or could not tell.
        set_aside: (name, file) of the snapshot that was moved away for it, or None.
        is_undone: ``undo`` has removed the file.
        is_undoing: ``undo`` was about to remove the file, and was killed.
    """

    partition: PartitionReceipt
    offset: int
    made: Fingerprint | None = None
    made_before: tuple[Fingerprint, ...] = ()
    snapshot_class: str | None = None
    is_settled: bool = False
    set_aside: tuple[str, Fingerprint] | None = None
    is_undone: bool = False
    is_undoing: bool = False

    @property
    def path(self) -> str:
        """Of the snapshot."""
        return os.path.join(self.partition.target, snapshot_file_name(self.offset))

    @property
    def all_made(self) -> tuple[Fingerprint, ...]:
        """Of these one is there, or none."""
        return self.made_before if self.made is None else (self.made, *self.made_before)


@dataclass(slots=True)
class WrittenReceipt:
    """A receipt as it was read.

    Attributes:
        path: of it.
        began_ms: when the run began to write, ms since 1970.
        in_place: it wrote beside the segments.
        host: of the run; empty in receipts of older versions, likewise ``command`` and ``cluster_ids``.
        ended: the run came to its end; else it was killed.
        partitions: by number.
        files: in the order of partitions and offsets.
    """

    path: str
    began_ms: int
    in_place: bool
    host: str = ""
    command: str = ""
    cluster_ids: tuple[str, ...] = ()
    ended: bool = False
    partitions: dict[int, PartitionReceipt] = field(default_factory=dict)
    files: list[WrittenFile] = field(default_factory=list)

    def why_not_here(self, target: str) -> str | None:
        """Why a directory that is not there need not have been deleted; None where it was, with the files in it.

        Args:
            target: of the files of a partition.
        """
        if not self.in_place or read_log_dir(os.path.dirname(target)).is_broker_directory:
            return None
        return "its log directory is not there either: another machine, or a volume that is not mounted"


def load_receipt(path: str) -> WrittenReceipt:
    """Reads a receipt. Half a line at its end is what a killed run leaves, and is passed over.

    Raises:
        UsageError: no such file, or no receipt; the line is named.
        ReadFailedError: it cannot be read.
        RefusedError: it tells of objects, which are neither removed nor judged by a receipt.
    """
    receipt = read_receipt(path)
    if any(is_object(partition.target) for partition in receipt.partitions.values()):
        raise RefusedError("tells of objects in a bucket, which are neither removed nor looked after by a receipt", path=path)
    return receipt


def read_receipt(path: str) -> WrittenReceipt:
    """Reads a receipt, wherever its files are; otherwise as ``load_receipt``.

    Raises:
        UsageError: no such file, or no receipt; the line is named.
        ReadFailedError: it cannot be read.
    """
    reading = _Reading(path)
    with open_named_file(path) as file:
        number = 0
        try:
            while line := file.readline(LINE_BYTES_MAX):
                number += 1
                if not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX and number > 1:
                    break
                reading.take(number, line)
        except OSError as error:
            raise ReadFailedError(f"cannot be read: {error.strerror}", path=path, errno=error.errno) from error
    return reading.whole()


class _Reading:
    """Takes the lines one by one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._receipt: WrittenReceipt | None = None
        self._files: dict[tuple[int, int], WrittenFile] = {}
        self._undoing: dict[int, list[WrittenFile]] = {}
        self._number = 0

    def take(self, number: int, line: bytes) -> None:
        self._number = number
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        expected = f'the header of a receipt, {{"schema":"{SCHEMA}",...}}' if self._receipt is None else "a step"
        if not isinstance(found, dict):
            raise self._fault(expected, shown(line[:200].decode(errors="replace")))
        try:
            if self._receipt is None:
                self._header(found)
            else:
                self._step(self._receipt, found)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._fault(expected, shown(f"{type(error).__name__}: {error}")) from error

    def whole(self) -> WrittenReceipt:
        if self._receipt is None:
            raise UsageError("is no receipt: it is empty", path=self._path)
        for file in chain.from_iterable(self._undoing.values()):
            file.is_undoing = True
        announced = (self._files[key] for key in sorted(self._files))
        self._receipt.files = [file for file in announced if file.made or file.set_aside]
        return self._receipt

    def _fault(self, expected: str, found: str) -> UsageError:
        return UsageError(f"is no receipt: line {self._number}: expected {expected}, found {found}", path=self._path)

    def _header(self, found: dict[str, Any]) -> None:
        if found["schema"] != SCHEMA:
            raise ValueError(f"schema {found['schema']}")
        self._receipt = WrittenReceipt(self._path, whole(found["began_ms"]), _is(bool, found["in_place"]))
        if "run" in found:
            _, self._receipt.host, self._receipt.command, clusters = run_facts(found["run"])
            self._receipt.cluster_ids = tuple(clusters)

    def _step(self, receipt: WrittenReceipt, found: dict[str, Any]) -> None:
        step = found["step"]
        if step == "end":
            receipt.ended = True
        elif step == "partition":
            receipt.partitions[whole(found["number"])] = _partition_of(found)
        elif step in ("undoing", "undone"):
            number = whole(found["partition"])
            files = [self._files[number, whole(offset)] for offset in found["offsets"]]
            self._undoing[number] = files if step == "undoing" else []
            for file in files:
                file.is_undone |= step == "undone"
        else:
            number, offset = whole(found["partition"]), whole(found["offset"])
            file = self._files.setdefault((number, offset), WrittenFile(receipt.partitions[number], offset))
            _take_step(file, step, found)


def _take_step(file: WrittenFile, step: str, found: dict[str, Any]) -> None:
    if step in ("written", "not_written"):
        file.is_settled = True
        # Which one of several was not written nobody tells: each is known by its modification time.
        if step == "not_written" and not file.made_before:
            file.made = file.snapshot_class = None
        return
    if found["name"] != snapshot_file_name(file.offset):
        raise ValueError(f"name {found['name']}")
    fingerprint = _fingerprint_of(found)
    if step == "write":
        if file.made is not None and file.made not in (fingerprint, *file.made_before):
            if len(file.made_before) == ATTEMPTS_MAX:
                raise ValueError(f"more than {ATTEMPTS_MAX} attempts at {found['name']}")
            file.made_before = (*file.made_before, file.made)
        file.made, file.snapshot_class = fingerprint, _is(str, found["class"])
    elif step == "set_aside":
        file.set_aside = (_aside_of(file.offset, found["set_aside"]), fingerprint)
    else:
        raise ValueError(f"step {step}")


def _aside_of(offset: int, name: object) -> str:
    number = re.fullmatch(r".*\.([0-9]{1,9})", _is(str, name), re.DOTALL)
    if number is None or aside_name(offset, int(number[1])) != name:
        raise ValueError(f"set_aside {name}")
    return str(name)


def _fingerprint_of(found: dict[str, Any]) -> Fingerprint:
    if re.fullmatch(r"[0-9a-f]{64}", found["sha256"]) is None:
        raise ValueError(f"sha256 {found['sha256']}")
    return Fingerprint(found["sha256"], whole(found["size_bytes"]), whole(found["mtime_ns"], least=-INT64_MAX))


def _partition_of(found: dict[str, Any]) -> PartitionReceipt:
    target, source = _is(str, found["target"]), _is(str, found["source"])
    for path in (target, source):
        if not (os.path.isabs(path) or is_object(path)) or not is_nameable(path):
            raise ValueError(f"path {path}")
    log_end = found["log_end_offset"]
    bases = tuple(_offsets(found["segments"]))
    segments = tuple(zip(bases, (whole(row[1]) for row in found["segments"]), strict=True))
    log = None
    if log_end is not None and bases:
        log = LoadedLog(
            base_offsets=bases,
            checkpointed_log_start=whole(found["checkpointed_log_start"]),
            log_end=whole(log_end),
            snapshots=dict.fromkeys(_offsets(found["snapshots"]), True),
            is_clean=_is(bool, found["clean_shutdown"]),
            recovery_point=whole(found["recovery_point"]),
            without_index=frozenset(whole(each) for each in found["without_index"]),
            is_tiered=_is(bool, found["is_tiered"]),
        )
    return PartitionReceipt(_is(str, found["topic_partition"]), source, target, log, segments)


def _offsets(rows: Any) -> Iterator[int]:
    previous = -1
    for row in rows:
        if whole(row[0]) <= previous:
            raise ValueError(f"offset {row[0]} does not ascend")
        previous = row[0]
        yield previous


Kind = TypeVar("Kind")


def _is(kind: type[Kind], value: object) -> Kind:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
