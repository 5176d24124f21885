"""A receipt as ``undo``, ``verify --written-by`` and ``report`` read it: nothing in it is trusted (``receipt_lines`` checks it)."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from formats.partition.file_names import snapshot_file_name
from formats.text_lines import shown
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.published import part_of
from snaprebuild.replay.broker_start import LoadedLog
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.receipts.part_files import JOINED, part_names
from snaprebuild.snapshots.receipts.receipt_lines import (
    FOLLOWER_KIND,
    KIND,
    OTHER_VERSION_ADVICE,
    SCHEMA,
    STORE_KIND,
    TOPIC_KIND,
    EndStep,
    FileStep,
    JoinedStep,
    NotWrittenStep,
    ObjectsStep,
    PartitionStep,
    PartsStep,
    ReceiptHeader,
    SetAsideStep,
    Step,
    UndoingStep,
    UndoneStep,
    WriteStep,
    WrittenStep,
)
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.log_dir import is_log_dir
from snaprebuild.storage.store import is_object
from snaprebuild.storage.store_path import path_of

__all__ = [
    "PartitionReceipt",
    "ReceiptHeading",
    "ReceiptKind",
    "ReceiptParts",
    "WrittenFile",
    "WrittenReceipt",
    "header_of",
    "heading_of",
    "load_receipt",
    "read_receipt",
    "steps_of",
]

LINE_BYTES_MAX = 512 << 20
"""A partition of 2,000,000 segments is named in one line."""

HEADER_BYTES_MAX = 1 << 16

ATTEMPTS_MAX = 100
"""At one snapshot: each is a run that was stopped before it recorded the outcome."""

_STEP: type[Step] = Step  # type: ignore[assignment]


class PartitionReceipt(msgspec.Struct, frozen=True):
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


class WrittenFile(msgspec.Struct):
    """A snapshot that a run announced.

    Attributes:
        partition: where.
        offset: from its name.
        fingerprint: of the file; None if the run only set the old one aside.
        earlier_fingerprints: files of other attempts at it, of which one may be there instead.
        snapshot_class: its class; None if ``fingerprint`` is None.
        is_settled: the run recorded its outcome; else it was killed, or did not know it.
        set_aside: (name, file) of the snapshot that was moved away for it, or None.
        is_undone: ``undo`` has removed the file.
        is_undoing: ``undo`` was about to remove the file, and was killed.
    """

    partition: PartitionReceipt
    offset: int
    fingerprint: Fingerprint | None = None
    earlier_fingerprints: tuple[Fingerprint, ...] = ()
    snapshot_class: SnapshotClass | None = None
    is_settled: bool = False
    set_aside: tuple[str, Fingerprint] | None = None
    is_undone: bool = False
    is_undoing: bool = False

    @property
    def path(self) -> str:
        """Path of the snapshot."""
        return os.path.join(self.partition.target, snapshot_file_name(self.offset))

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """All files that may be there: one of them is, or none."""
        if self.fingerprint is None:
            return self.earlier_fingerprints
        return (self.fingerprint, *self.earlier_fingerprints)


class ReceiptParts(msgspec.Struct, frozen=True):
    """The parts of a receipt.

    Attributes:
        directory: of the parts.
        run: hexadecimal digits in their names.
        receipt: path of the receipt; None if the directory was named instead of it.
    """

    directory: str
    run: str
    receipt: str | None


class WrittenReceipt(msgspec.Struct):
    """A receipt as it was read.

    Attributes:
        path: of it; of the directory, if its parts were read without it.
        began_ms: when the run began to write, ms since 1970.
        in_place: it wrote next to the segments.
        host: of the run.
        server_properties: path of the configuration that the run followed; None without one.
        kafka_release: that the run was told to expect at the next start; None without one.
        ended: the run was completed; else it was killed.
        partitions: by number.
        files: in the order of partitions and offsets.
        parts: that were read besides the file, or without one, because the run was killed; None for a receipt that is one file.
        joined_parts: parts whose lines the file has, and of which some may be left; None if there were none.
        objects_run: what objects of the run have in their metadata ``snaprebuild-run``; None if tasks in other processes made none.
    """

    path: str
    began_ms: int
    in_place: bool
    host: str = ""
    command: str = ""
    cluster_ids: tuple[str, ...] = ()
    server_properties: str | None = None
    kafka_release: str | None = None
    ended: bool = False
    partitions: dict[int, PartitionReceipt] = {}
    files: list[WrittenFile] = []
    parts: ReceiptParts | None = None
    joined_parts: ReceiptParts | None = None
    objects_run: str | None = None

    def why_not_here(self, target: str) -> str | None:
        """Why a directory that is not there need not have been deleted; None where it was, with the files in it.

        Args:
            target: of the files of a partition.
        """
        if not self.in_place or is_log_dir(path_of(os.path.dirname(target))):
            return None
        return "its log directory is not there either: another machine, or a volume that is not mounted"


def header_of(path: str) -> dict[str, object]:
    """The members of the first line of a file of ours; none where it is another file.

    Raises:
        UsageError: no such file.
        ReadFailedError: it cannot be read.
    """
    with open_named_file(path) as file:
        line = file.readline(HEADER_BYTES_MAX)
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


class ReceiptKind(Enum):
    """Which receipts a run leaves; the value begins the schema of all versions."""

    SNAPSHOTS = KIND
    """The receipt names snapshots in directories, or objects."""
    STORE = STORE_KIND
    """The receipt names manifests that `tier repair` replaced."""
    METADATA_TOPIC = TOPIC_KIND
    """The receipt names directories that `tier metadata` wrote."""
    FOLLOWER = FOLLOWER_KIND
    """The receipt names the directory that `follower build` wrote."""


class ReceiptHeading(NamedTuple):
    """A receipt by its first line.

    Attributes:
        path: of it.
        began_ms: when the run began to write, ms since 1970.
        kind: which command wrote it.
    """

    path: str
    began_ms: int
    kind: ReceiptKind


def heading_of(path: str) -> ReceiptHeading | None:
    """The heading of a receipt, of any version; None for another file.

    Raises:
        UsageError: no such file.
        ReadFailedError: it cannot be read.
    """
    header = header_of(path)
    began_ms = header.get("began_ms")
    schema = str(header.get("schema"))
    kind = next((each for each in ReceiptKind if schema.startswith(each.value)), None)
    if not isinstance(began_ms, int) or kind is None:
        return None
    return ReceiptHeading(path, began_ms, kind)


def load_receipt(path: str) -> WrittenReceipt:
    """Reads a receipt of files on this machine; otherwise as ``read_receipt``.

    Raises:
        RefusedError: it names objects, which are neither removed nor judged by a receipt.
    """
    receipt = read_receipt(path)
    if receipt.objects_run is not None or any(is_object(partition.target) for partition in receipt.partitions.values()):
        if receipt.objects_run is None:
            run = ""
        else:
            run = f"; each has {receipt.objects_run} in its metadata `snaprebuild-run`"
        raise RefusedError(f"names objects in a bucket, which `undo` does not remove and `verify` does not look at{run}", path=path)
    return receipt


def read_receipt(path: str) -> WrittenReceipt:
    """Reads a receipt, wherever its files are. Half a line at its end, which a killed run leaves, is ignored.

    The parts of a receipt whose run was killed are read with it.

    Args:
        path: of the file; or of a directory with the parts of the receipt of one run.

    Raises:
        UsageError: no such file, or no receipt; the line is named. Or a directory without parts, or with those of several runs.
        ReadFailedError: it cannot be read, or its parts are not where the run wrote them.
    """
    if os.path.isdir(path):
        return _read_directory(path)
    reading = _Reading()
    reading.take_file(path)
    parts = reading.parts
    if parts is not None:
        names = _names_of(parts)
        if not names:
            message = (
                f"the run of this receipt was killed, and its parts are not in {parts.directory}: mount it, or bring them back"
            )
            raise ReadFailedError(message, path=path)
        for name in names:
            reading.take_file(os.path.join(parts.directory, name), is_part=True)
    return reading.whole(parts)


def _names_of(parts: ReceiptParts) -> list[str]:
    """The names of the parts; none where their directory is not there."""
    try:
        return part_names(parts.directory).get(parts.run, [])
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            return []
        raise


def _read_directory(directory: str) -> WrittenReceipt:
    """The receipt of which a directory has the parts, or the part that an ``undo`` made of them."""
    by_run = part_names(directory)
    if not by_run:
        raise UsageError(
            "has no part of a receipt: name the file that the run left, or the directory that has its parts; `undo` lists the receipts",
            path=directory,
        )
    if len(by_run) > 1:
        message = (
            f"has the parts of receipts of {len(by_run)} runs: name the receipt of one, or move the parts of each to a directory"
        )
        raise UsageError(message, path=directory)
    directory = os.path.abspath(directory)
    [(run, names)] = by_run.items()
    reading = _Reading()
    for name in names:
        reading.take_file(os.path.join(directory, name), is_part=True)
    if reading.is_empty:
        raise UsageError("has parts of a receipt without a whole line: the run was killed before it wrote anything", path=directory)
    if len(names) == 1 and f"-{JOINED}." in names[0]:
        return reading.whole(None)
    receipt = reading.whole(ReceiptParts(directory, run, None))
    receipt.path = directory
    return receipt


def steps_of(path: str, *, is_part: bool = False) -> Iterator[ReceiptHeader | Step]:
    """The lines of a receipt, or of a part of one: a header, then steps. Each follows its schema; half a line at the end is ignored.

    Args:
        path: of the file.
        is_part: a task that was killed may have left it without a whole header. Then nothing was announced in it.

    Raises:
        UsageError, ReadFailedError: as ``read_receipt``.
    """
    with open_named_file(path) as file:
        number = 0
        try:
            while line := file.readline(LINE_BYTES_MAX):
                number += 1
                if not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX and (is_part or number > 1):
                    break
                value = _object(path, number, line)
                if number == 1:
                    yield _header(path, value, line)
                else:
                    yield part_of(_STEP, value, path=path, what=f"line {number}")
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
    if not number and not is_part:
        raise UsageError("is not a receipt: it is empty", path=path)


def _object(path: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"is not a receipt: line {number}: expected an object, found {_shown(line)}", path=path)
    return value


def _text_of(request: dict[str, Any], name: str) -> str | None:
    """A member of the request of a run, which is another one for each verb; None where it is not there or no text."""
    value = request.get(name)
    return value if isinstance(value, str) else None


def _header(path: str, value: dict[str, Any], line: bytes) -> ReceiptHeader:
    schema = value.get("schema")
    if schema != SCHEMA:
        if isinstance(schema, str) and schema.startswith(KIND):
            raise UsageError(f"is of another version: expected {SCHEMA}, found {shown(schema)}; {OTHER_VERSION_ADVICE}", path=path)
        expected = f'the header of a receipt, {{"schema":"{SCHEMA}",...}}'
        raise UsageError(f"is not a receipt: line 1: expected {expected}, found {_shown(line)}", path=path)
    return part_of(ReceiptHeader, value, path=path, what="line 1")


def _shown(line: bytes) -> str:
    return shown(line[:200].decode(errors="replace"))


class _Reading:
    """Takes the steps of a receipt one by one, and then those of its parts."""

    def __init__(self) -> None:
        self.parts: ReceiptParts | None = None
        """Where further lines of the receipt are."""
        self._receipt: WrittenReceipt | None = None
        self._files: dict[tuple[int, int], WrittenFile] = {}
        self._undoing: dict[int, list[WrittenFile]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no header was taken."""
        return self._receipt is None

    def take_file(self, path: str, *, is_part: bool = False) -> None:
        """Takes the lines of the receipt, or of a part of it."""
        for number, step in enumerate(steps_of(path, is_part=is_part), start=1):
            try:
                self._take(path, step)
            except (KeyError, ValueError) as error:
                if isinstance(error, ValueError):
                    what = str(error)
                else:
                    what = "names a partition or file that no line above names"
                raise UsageError(f"is damaged: line {number}: {what}", path=path) from error

    def whole(self, parts: ReceiptParts | None) -> WrittenReceipt:
        assert self._receipt is not None, "a receipt has a header"
        for file in chain.from_iterable(self._undoing.values()):
            file.is_undoing = True
        announced = (self._files[key] for key in sorted(self._files))
        self._receipt.files = [file for file in announced if file.fingerprint or file.set_aside]
        self._receipt.parts = parts
        return self._receipt

    def _take(self, path: str, step: ReceiptHeader | Step) -> None:
        match step:
            case ReceiptHeader():
                self._take_header(path, step)
            case PartsStep():
                self.parts = ReceiptParts(step.directory, step.run, path)
            case JoinedStep():
                self._joined()
            case EndStep():
                self._ended()
            case ObjectsStep():
                self._made_objects(step.run)
            case _:
                self._take_step(step)

    def _take_header(self, path: str, header: ReceiptHeader) -> None:
        if self._receipt is None:
            run = header.run
            self._receipt = WrittenReceipt(
                path=path,
                began_ms=header.began_ms,
                in_place=header.in_place,
                host=run.host,
                command=run.command,
                cluster_ids=run.cluster_ids,
                server_properties=_text_of(header.request, "server_properties"),
                kafka_release=_text_of(header.request, "kafka_release"),
            )
        elif (self._receipt.began_ms, self._receipt.in_place) != (header.began_ms, header.in_place):
            raise ValueError("the header of another run")

    def _joined(self) -> None:
        assert self._receipt is not None
        self._receipt.joined_parts = self.parts
        self.parts = None

    def _ended(self) -> None:
        assert self._receipt is not None
        self._receipt.ended = True

    def _made_objects(self, run: str) -> None:
        assert self._receipt is not None
        self._receipt.objects_run = run

    def _take_step(self, step: FileStep) -> None:
        assert self._receipt is not None
        match step:
            case PartitionStep():
                before = self._receipt.partitions.setdefault(step.number, _partition_of(step))
                if before.target != step.target:
                    raise ValueError(f"expected the partition with the files in {before.target}")
            case UndoingStep():
                self._undoing[step.number] = [self._files[step.number, offset] for offset in step.offsets]
            case UndoneStep():
                self._undoing[step.number] = []
                for offset in step.offsets:
                    self._files[step.number, offset].is_undone = True
            case WriteStep():
                _announce(self._file(step.number, step.offset), step)
            case SetAsideStep():
                self._file(step.number, step.offset).set_aside = (step.set_aside, step.fingerprint)
            case WrittenStep():
                self._file(step.number, step.offset).is_settled = True
            case NotWrittenStep():
                file = self._file(step.number, step.offset)
                file.is_settled = True
                # Which one of several was not written is unknown: each has its own modification time.
                if not file.earlier_fingerprints:
                    file.fingerprint = file.snapshot_class = None

    def _file(self, number: int, offset: int) -> WrittenFile:
        assert self._receipt is not None
        return self._files.setdefault((number, offset), WrittenFile(self._receipt.partitions[number], offset))


def _announce(file: WrittenFile, step: WriteStep) -> None:
    if file.fingerprint is not None and file.fingerprint not in (step.fingerprint, *file.earlier_fingerprints):
        if len(file.earlier_fingerprints) == ATTEMPTS_MAX:
            raise ValueError(f"more than {ATTEMPTS_MAX} attempts at {step.name}")
        file.earlier_fingerprints = (*file.earlier_fingerprints, file.fingerprint)
    file.fingerprint = step.fingerprint
    file.snapshot_class = step.snapshot_class


def _partition_of(step: PartitionStep) -> PartitionReceipt:
    log = None
    if step.log_end_offset is not None and step.segments:
        log = LoadedLog(
            base_offsets=tuple(each.offset for each in step.segments),
            checkpointed_log_start_offset=step.checkpointed_log_start_offset,
            log_end_offset=step.log_end_offset,
            snapshots={each.offset: True for each in step.snapshots},
            is_clean=step.clean_shutdown,
            recovery_point=step.recovery_point,
            without_index=frozenset(step.without_index),
            is_tiered=step.is_tiered,
        )
    segments = tuple((each.offset, each.size_bytes) for each in step.segments)
    return PartitionReceipt(step.topic_partition, step.source, step.target, log, segments)
