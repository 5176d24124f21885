"""The ledger of an audit: a file of JSON lines that only grows while a run works, and is written anew at its end if much of it is old.

A header is first. Then there is a line for each round, for each segment that was read, and for each part of a small object.
A copy has another line whenever what is proven of it changes. A run that is killed leaves at most half a line, which the next one removes.
A power failure may leave lines without their bytes, but only after the last line that says what is on the device: the next run removes
them, too.
The lines of a segment and of a range hold what was read: the next run judges with them what it need not read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Literal, Self

import msgspec

from formats.log.batch_headers import TailKind
from formats.text_lines import shown
from snaprebuild import __version__
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.published import Natural, Part, Uuid, line_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.snapshots.run import current_time_ms
from snaprebuild.storage.local.document_file import AUDIT_LEDGER, new_file, write_text_file
from snaprebuild.storage.local.journal_file import JournalFile
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.tier.audit.partition_audit import ProofKind, SnapshotVerdict
from snaprebuild.tier.ledger.kept_summary import kept_bytes, kept_pieces

__all__ = ["SCHEMA", "AuditLedger", "CopyKey", "CopyLine", "LedgerHeader", "RangeLine", "RoundLine", "SegmentLine", "SyncLine"]

KIND = "snaprebuild.audit-ledger/"
SCHEMA: Literal["snaprebuild.audit-ledger/1"] = "snaprebuild.audit-ledger/1"

LINE_BYTES_MAX = 2 << 30
"""A summary of a segment in base64."""

SYNC_SECONDS = 1.0
"""Lines wait no longer for a sync: a failure of power loses what was read in that time."""

DIGEST_BYTES = 16

LOST_BYTE = b"\0"
"""A file system leaves it where bytes did not reach the device and later ones did. No line has it."""

SYNC_LINE_START = b'{"step":"sync",'


class CopyKey(msgspec.Struct, frozen=True):
    """A copy with these objects.

    Attributes:
        segment_id: as Kafka prints it.
        mark: digest of the sizes and ETags of all its objects, or of their inodes and times.
    """

    segment_id: str
    mark: str


class LedgerHeader(Part, frozen=True, kw_only=True):
    """The first line."""

    schema: Literal["snaprebuild.audit-ledger/1"]
    snaprebuild: str
    """Version of the program that began the file."""
    began_ms: Natural
    """When that was, ms since 1970."""
    location: str
    """Location of the store."""
    key_prefix: str
    """Key prefix of the plugin, below the location."""


class _Line(Part, frozen=True, tag_field="step"):
    pass


class RoundLine(_Line, frozen=True, tag="round"):
    """A round begins: every segment that was read before is read again, the one that was read first at first."""

    began_ms: Natural
    """When it began, ms since 1970."""


class SegmentLine(_Line, frozen=True, tag="segment"):
    """A segment was read."""

    segment_id: Uuid
    mark: str
    """Digest of the sizes and ETags of all objects of the copy, or of their inodes and times."""
    read_ms: Natural
    """When it was read, ms since 1970."""
    cuts: tuple[int, ...]
    """Offsets inside it at which it was cut in pieces."""
    is_last: bool
    """The segment was the last one of its partition."""
    end_offset: int | None
    """Offset after its last batch; null if its batches do not end where the object does."""
    until: int | None
    """Offset from which on its batches do not count; null if all do."""
    snaprebuild: str
    """Version of the program that read it; another one reads it again."""
    digest: str
    """Digest of the data, in hexadecimal."""
    data: bytes
    """The data that was read (`kept_summary`), in base64."""


class RangeLine(_Line, frozen=True, tag="range"):
    """A part of a small object was read."""

    segment_id: Uuid
    mark: str
    """Digest of the sizes and ETags of all objects of the copy, or of their inodes and times."""
    of: str
    """The object by the end of its name, and the part of it."""
    read_ms: Natural
    """When it was read, ms since 1970."""
    size_bytes: Natural
    digest: str
    """Digest of the data, in hexadecimal."""
    data: bytes | None
    """Bytes of the object, in base64; null in old ledgers if there was no such object."""


class CopyLine(_Line, frozen=True, tag="copy"):
    """The facts that the ledger has of a copy."""

    topic: str
    topic_id: Uuid
    partition: Natural
    segment_id: Uuid
    mark: str
    """Digest of the sizes and ETags of all its objects, or of their inodes and times."""
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset of the segment; null if it is unknown."""
    size_bytes: Natural
    """Bytes of all its objects."""
    etag: str | None
    """ETag of the object with the segment; null for a file."""
    uploaded_ms: Natural
    """When the object with the segment was written, ms since 1970."""
    verdict: SnapshotVerdict
    """Verdict on its snapshot."""
    proof: ProofKind | None
    """Proof of the snapshot; null as long as it is not proven."""
    proven_ms: Natural | None
    """When its segment was read for that proof, ms since 1970; null without one."""
    failed_ms: Natural | None = None
    """When its segment could not be read; null if it never was read, or could be read the last time."""


class SyncLine(_Line, frozen=True, tag="sync"):
    """All bytes of the file below a position are on the device: no power failure explains damage there."""

    size_bytes: Natural
    """The position."""


LedgerLine = RoundLine | SegmentLine | RangeLine | CopyLine | SyncLine


@dataclass(frozen=True, slots=True)
class _Place:
    """A line in the file, without its end."""

    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _KeptRead:
    """A segment that was read: as its line has it, without the summaries."""

    place: _Place
    read_ms: int
    cuts: tuple[int, ...]
    is_last: bool
    end_offset: int | None
    until: int | None

    @classmethod
    def of(cls, line: SegmentLine, place: _Place) -> Self:
        """The segment of a line."""
        return cls(place, line.read_ms, line.cuts, line.is_last, line.end_offset, line.until)

    def serves(self, task: ReadTask) -> bool:
        """Whether a task would read the same summaries: a segment that is not the last one any more is cut in the same pieces."""
        if self.until != task.until:
            return False
        if self.end_offset is None:
            return (self.cuts, self.is_last) == (task.cuts, task.is_last)
        return _inner_cuts(self.cuts, self.end_offset, is_last=self.is_last) == _inner_cuts(
            task.cuts, self.end_offset, is_last=task.is_last
        )


def _inner_cuts(cuts: tuple[int, ...], end_offset: int, *, is_last: bool) -> tuple[int, ...]:
    """The cuts that are made: none at the end of the last segment, or above."""
    return tuple(cut for cut in cuts if cut < end_offset) if is_last else cuts


@dataclass(frozen=True, slots=True)
class _KeptRange:
    """A part of an object that was read: as its line has it, without the bytes."""

    place: _Place
    read_ms: int


@dataclass(slots=True)
class _Contents:
    """The places of the entries of a ledger in its file.

    Attributes:
        size_bytes: of the whole lines.
    """

    header: LedgerHeader | None = None
    round_began_ms: int | None = None
    segments: dict[CopyKey, _KeptRead] = field(default_factory=dict)
    ranges: dict[CopyKey, dict[str, _KeptRange]] = field(default_factory=dict)
    copies: dict[str, CopyLine] = field(default_factory=dict)
    size_bytes: int = 0

    def take_segment(self, key: CopyKey, kept: _KeptRead) -> None:
        """Takes a segment that was read. The small objects of its copy that were read before this round are read again, too."""
        self.segments[key] = kept
        began_ms = self.round_began_ms
        ranges = self.ranges.get(key)
        if ranges is not None and began_ms is not None:
            self.ranges[key] = {of: each for of, each in ranges.items() if began_ms <= each.read_ms <= kept.read_ms}


class AuditLedger:
    """An open ledger, which no other run can open. A context manager. Several threads may add to it.

    Attributes:
        path: of the file.
        is_new: this run has created it.
        began_ms: when the first run created it.
        copies: what is known of each copy, by segment id.
    """

    def __init__(self, path: str, journal: JournalFile, contents: _Contents, *, is_new: bool) -> None:
        """Takes an open journal, and what is in it; ``open`` makes one."""
        assert contents.header is not None
        self.path = path
        self.is_new = is_new
        self.began_ms = contents.header.began_ms
        self.copies = contents.copies
        self._header = contents.header
        self._journal = journal
        self._contents = contents
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        self._has_grown = False
        self._has_unmarked = False

    @classmethod
    def open(cls, path: str, location: str, key_prefix: str = "") -> Self:
        """Opens a ledger, or creates it.

        Args:
            path: of the file.
            location: of the store that is audited.
            key_prefix: of the plugin, below the location.

        Raises:
            UsageError: it is no ledger, that of another store or prefix, of another version, or damaged: the line is named.
            HeldError: another run uses it.
            RefusedError: a file may not be created there.
            ReadFailedError, WriteFailedError: it cannot be read, or written.
        """
        is_new = not os.path.lexists(path)
        if is_new:
            header = LedgerHeader(
                schema=SCHEMA, snaprebuild=__version__, began_ms=current_time_ms(), location=location, key_prefix=key_prefix
            )
            with new_file(path) as file:  # with its first line, or not at all
                file.write(f"{line_of(header)}\n".encode())
        else:
            _header_of(path, location, key_prefix)  # before it is opened for writing: it may be any file
        journal = JournalFile.existing(path)
        try:
            contents = _contents_of(path)
            if contents.size_bytes < os.path.getsize(path):
                journal.cut(contents.size_bytes)
        except BaseException:
            journal.close()
            raise
        return cls(path, journal, contents, is_new=is_new)

    # ------------------------------------------------------------------------------------------------------ what is in it

    @property
    def has_grown(self) -> bool:
        """Whether this run has kept anything that it read."""
        return self._has_grown

    @property
    def round_began_ms(self) -> int:
        """When the present round began."""
        began_ms = self._contents.round_began_ms
        return self.began_ms if began_ms is None else began_ms

    def read_ms(self, key: CopyKey, task: ReadTask) -> int | None:
        """When the segment of a copy was read as a task reads it; None if it was not."""
        kept = self._kept(key, task)
        return None if kept is None else kept.read_ms

    def last_read_ms(self, key: CopyKey) -> int | None:
        """When the segment of a copy was read last; None if it was not."""
        kept = self._contents.segments.get(key)
        return None if kept is None else kept.read_ms

    def pieces(self, key: CopyKey, task: ReadTask) -> tuple[SegmentSummary, ...] | None:
        """The summaries of a segment as a task wants them; None if it was not read, or was read in another way.

        Raises:
            UsageError: the line is damaged.
            ReadFailedError: the file cannot be read.
        """
        kept = self._kept(key, task)
        if kept is None:
            return None
        line: SegmentLine = self._line(kept.place, SegmentLine)
        try:
            return kept_pieces(line.data)
        except ValueError as error:
            raise _damaged(self.path, f"byte {kept.place.position}: the summary of a segment: {error}") from error

    def _kept(self, key: CopyKey, task: ReadTask) -> _KeptRead | None:
        kept = self._contents.segments.get(key)
        if kept is not None and kept.serves(task):
            return kept
        return None

    def range(self, key: CopyKey, of: str) -> RangeLine | None:
        """A part of an object that was kept; None if it was not.

        Raises:
            UsageError: the line is damaged.
            ReadFailedError: the file cannot be read.
        """
        kept = self._contents.ranges.get(key, {}).get(of)
        return None if kept is None else self._line(kept.place, RangeLine)

    def _line(self, place: _Place, kind: type[Any]) -> Any:
        data = self._journal.read_at(place.position, place.size_bytes)
        try:
            return _checked(msgspec.json.decode(data, type=kind))
        except (msgspec.MsgspecError, ValueError) as error:
            raise _damaged(self.path, f"byte {place.position}: expected a line of kind {kind.__name__}") from error

    # ------------------------------------------------------------------------------------------------------ what is added

    def begin_round(self) -> None:
        """Begins a round: whatever was read before is read again.

        Raises:
            WriteFailedError: it cannot be written.
        """
        line = RoundLine(began_ms=current_time_ms())
        self._append(line)
        self._contents.round_began_ms = line.began_ms

    def keep_segment(self, key: CopyKey, task: ReadTask, pieces: tuple[SegmentSummary, ...]) -> None:
        """Keeps the summaries of a segment that was read now.

        Raises:
            WriteFailedError: they cannot be written.
        """
        data = kept_bytes(pieces)
        line = SegmentLine(
            segment_id=key.segment_id,
            mark=key.mark,
            read_ms=current_time_ms(),
            cuts=task.cuts,
            is_last=task.is_last,
            end_offset=pieces[-1].facts.next_offset if pieces[-1].tail.kind is TailKind.CLEAN else None,
            until=task.until,
            snaprebuild=__version__,
            digest=_digest(data),
            data=data,
        )
        place = self._append(line)
        self._contents.take_segment(key, _KeptRead.of(line, place))

    def keep_range(self, key: CopyKey, of: str, size_bytes: int, data: bytes) -> None:
        """Keeps a part of an object.

        Args:
            key: of the copy.
            of: the object, and the part of it.
            size_bytes: of the whole object, as far as the reader was told.
            data: the bytes.

        Raises:
            WriteFailedError: it cannot be written.
        """
        digest = _digest(data)
        line = RangeLine(
            segment_id=key.segment_id,
            mark=key.mark,
            of=of,
            read_ms=current_time_ms(),
            size_bytes=size_bytes,
            digest=digest,
            data=data,
        )
        self._contents.ranges.setdefault(key, {})[of] = _KeptRange(self._append(line), line.read_ms)
        self._has_grown = True

    def record(self, copy: CopyLine) -> None:
        """Records what is known of a copy, if that has changed.

        Raises:
            WriteFailedError: it cannot be written.
        """
        if self.copies.get(copy.segment_id) != copy:
            self._append(copy)
            self.copies[copy.segment_id] = copy

    def _append(self, line: LedgerLine) -> _Place:
        text = line_of(line)
        with self._lock:
            now = time.monotonic()
            is_due = now - self._synced >= SYNC_SECONDS
            self._journal.append(text, sync=is_due)
            place = _Place(self._contents.size_bytes, len(text))
            self._contents.size_bytes += len(text) + 1
            self._has_unmarked = True
            if is_due:
                self._synced = now
                self._mark_synced()
        return place

    def _mark_synced(self) -> None:
        """Appends that all lines so far are on the device. It is there with the next sync."""
        text = line_of(SyncLine(size_bytes=self._contents.size_bytes))
        self._journal.append(text, sync=False)
        self._contents.size_bytes += len(text) + 1
        self._has_unmarked = False

    # ------------------------------------------------------------------------------------------------------ the end

    def drop_all_but(self, keys: Collection[CopyKey]) -> None:
        """Forgets all copies but these: the others are not in the store any more, or have other objects.

        The file is written anew if less than half of it is left.

        Raises:
            WriteFailedError: it cannot be written; then it is as it was.
        """
        contents = self._contents
        ids = {key.segment_id for key in keys}
        contents.segments = {key: kept for key, kept in contents.segments.items() if key in keys}
        contents.ranges = {key: ranges for key, ranges in contents.ranges.items() if key in keys}
        for segment_id in [each for each in self.copies if each not in ids]:
            del self.copies[segment_id]
        places = [kept.place for kept in contents.segments.values()]
        places += [kept.place for ranges in contents.ranges.values() for kept in ranges.values()]
        copy_bytes = sum(len(line_of(each)) + 1 for each in self.copies.values())
        live_bytes = sum(place.size_bytes + 1 for place in places) + copy_bytes + len(line_of(self._header)) + 1
        if 2 * live_bytes < contents.size_bytes:
            self._journal.sync()
            write_text_file(self.path, self._new_lines(sorted(places, key=lambda each: each.position)), replaces=AUDIT_LEDGER)

    def _new_lines(self, places: list[_Place]) -> Iterator[str]:
        """The lines of a new file, which is on the device before it has its name: the last one says so."""
        size_bytes = 0
        for line in self._live_lines(places):
            size_bytes += len(line)  # all of it is ASCII
            yield line
        yield f"{line_of(SyncLine(size_bytes=size_bytes))}\n"

    def _live_lines(self, places: list[_Place]) -> Iterator[str]:
        yield f"{line_of(self._header)}\n"
        if self._contents.round_began_ms is not None:
            yield f"{line_of(RoundLine(began_ms=self._contents.round_began_ms))}\n"
        for place in places:
            yield self._journal.read_at(place.position, place.size_bytes).decode("ascii") + "\n"
        for copy in self.copies.values():
            yield f"{line_of(copy)}\n"

    def close(self) -> None:
        """Syncs and closes the file. A second call does nothing.

        Raises:
            WriteFailedError: it cannot be written.
        """
        try:
            self._journal.sync()
            if self._has_unmarked and self._journal.has_its_name():
                self._mark_synced()
                self._journal.sync()
        finally:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
        else:
            self._journal.close()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def _checked(line: Any) -> Any:
    """The line; raises ValueError if it holds other bytes than were written."""
    if isinstance(line, SegmentLine | RangeLine) and _digest(line.data or b"") != line.digest:
        raise ValueError("its digest differs")
    return line


def _damaged(path: str, what: str) -> UsageError:
    advice = "move the file away, and the next run begins a new ledger and reads everything again"
    return UsageError(f"is damaged: {what}; {advice}", path=path)


def _header_of(path: str, location: str, key_prefix: str) -> LedgerHeader:
    """The header of a ledger of a store, whose keys begin with a prefix.

    Raises:
        UsageError: it is none, or of another store, prefix or version.
        ReadFailedError: the file cannot be read.
    """
    with open_named_file(path) as file:
        try:
            first = file.readline(1 << 20)
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        value = None
    schema = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(schema, str) or not schema.startswith(KIND):
        found = "another file" if not isinstance(schema, str) else shown(schema)
        raise UsageError(f"is no ledger of tier audit: expected {SCHEMA}, found {found}", path=path)
    if schema != SCHEMA:
        message = f"is of another version: expected {SCHEMA}, found {shown(schema)}; use the version of snaprebuild that wrote it"
        raise UsageError(message, path=path)
    try:
        header = msgspec.convert(value, LedgerHeader)
    except msgspec.ValidationError as error:
        raise _damaged(path, "line 1: is not the header of a ledger") from error
    if header.location != location:
        raise UsageError(f"is the ledger of another store: expected {location}, found {shown(header.location)}", path=path)
    if header.key_prefix != key_prefix:
        message = f"is the ledger of another key_prefix: expected {shown(key_prefix)}, found {shown(header.key_prefix)}"
        raise UsageError(message, path=path)
    return header


_LINES: msgspec.json.Decoder[LedgerLine] = msgspec.json.Decoder(LedgerLine)
_SYNC_LINE = msgspec.json.Decoder(SyncLine)


def _contents_of(path: str) -> _Contents:
    """Reads a ledger. Half a line at its end is not part of it, nor is what a power failure left of lines that were not on the device.

    Raises:
        UsageError: a line is none of a ledger.
        ReadFailedError: the file cannot be read.
    """
    contents = _Contents()
    with open_named_file(path) as file:
        number = 0
        try:
            while line := file.readline(LINE_BYTES_MAX):
                number += 1
                if not line.endswith(b"\n"):
                    break
                if LOST_BYTE in line and contents.header is not None and not _is_synced(file, contents.size_bytes):
                    break
                place = _Place(contents.size_bytes, len(line) - 1)
                contents.size_bytes += len(line)
                if contents.header is None:
                    contents.header = msgspec.convert(json.loads(line), LedgerHeader)
                else:
                    _add(contents, _checked(_LINES.decode(line)), place)
        except (msgspec.MsgspecError, ValueError) as error:
            raise _damaged(path, f"line {number}: is not a line of a ledger") from error
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
    if contents.header is None:
        raise _damaged(path, "line 1: expected the header of a ledger, found half a line")
    return contents


def _is_synced(file: IO[bytes], position: int) -> bool:
    """Whether any of the following lines says that more than ``position`` bytes of the file are on the device.

    Raises:
        OSError: the file cannot be read.
    """
    while line := file.readline(LINE_BYTES_MAX):
        if line.startswith(SYNC_LINE_START):
            with contextlib.suppress(msgspec.MsgspecError):
                if _SYNC_LINE.decode(line).size_bytes > position:
                    return True
    return False


def _add(contents: _Contents, line: LedgerLine, place: _Place) -> None:
    if isinstance(line, SyncLine):
        return
    if isinstance(line, RoundLine):
        contents.round_began_ms = line.began_ms
    elif isinstance(line, CopyLine):
        contents.copies[line.segment_id] = line
    elif isinstance(line, RangeLine):
        contents.ranges.setdefault(CopyKey(line.segment_id, line.mark), {})[line.of] = _KeptRange(place, line.read_ms)
    elif line.snaprebuild == __version__:  # another release may read a segment differently
        contents.take_segment(CopyKey(line.segment_id, line.mark), _KeptRead.of(line, place))
