"""The summaries of a segment as bytes, and back: a ledger keeps them, so that no later run has to read the segment for the same proof.

Nothing is pickled: a ledger is a file that anybody may have changed.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from formats import errors
from formats.errors import FormatError
from formats.log.batch_headers import Tail, TailKind
from snaprebuild.replay.first_events import EVENT_COLUMNS, FirstEvents
from snaprebuild.replay.segment_effect import COLUMNS, NO_CLOSES, ClosedTransactions, SegmentEffect
from snaprebuild.replay.segment_summary import BatchContents, BatchTotals, SegmentSummary

__all__ = ["KEPT_BYTES_MAX", "kept_bytes", "kept_pieces", "without_first_events"]

KEPT_BYTES_MAX = 1 << 30
"""Size of the summaries of one segment, before compression."""

_CLOSE_DTYPES = {name: getattr(NO_CLOSES, name).dtype.str for name in ClosedTransactions.__struct_fields__}
_EVENT_DTYPES = {name: dtype for name, (dtype, _) in EVENT_COLUMNS.items()}
_EFFECT_DTYPES = {name: dtype for name, (dtype, _) in COLUMNS.items()}

_Columns = dict[str, bytes]
"""Arrays as bytes, little endian, by name."""


class _KeptError(msgspec.Struct, frozen=True):
    """The fault at the end of the batches of a segment."""

    kind: str
    what: str
    file: str | None
    position: int | None
    expected: int | str | None
    found: int | str | None
    unit: str


class _KeptPiece(msgspec.Struct, frozen=True):
    """A ``SegmentSummary``."""

    base_offset: int
    size_bytes: int
    read_bytes: int
    cut_offset: int | None
    cut_batch_offset: int | None
    tail_kind: str
    tail_position_bytes: int
    tail_error: _KeptError | None
    facts: BatchTotals
    commits_omitted: int
    effect: _Columns
    closes: _Columns
    events: _Columns | None
    newest_timestamp: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_KeptPiece])


def kept_bytes(pieces: tuple[SegmentSummary, ...]) -> bytes:
    """The summaries of a segment as compressed bytes."""
    return zlib.compress(_ENCODER.encode([_kept(each) for each in pieces]), 1)


def kept_pieces(data: bytes) -> tuple[SegmentSummary, ...]:
    """The summaries of a segment from its bytes.

    Raises:
        ValueError: they are not from ``kept_bytes``.
    """
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(data, KEPT_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not decompressor.eof:
        raise ValueError("the compressed bytes have no end, or are too many")
    try:
        return tuple(_summary(each) for each in _DECODER.decode(plain))
    except (msgspec.MsgspecError, KeyError) as error:
        raise ValueError(str(error)) from error


def without_first_events(piece: SegmentSummary) -> SegmentSummary:
    """A summary as a reader gets it that did not ask for first events."""
    return replace(piece, contents=replace(piece.contents, first_events=None))


def _columns_of(value: Any, dtypes: dict[str, str]) -> _Columns:
    return {name: np.ascontiguousarray(getattr(value, name), dtype=dtype).tobytes() for name, dtype in dtypes.items()}


def _arrays(columns: _Columns, dtypes: dict[str, str]) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(columns[name], dtype=dtype).copy() for name, dtype in dtypes.items()}


def _kept(piece: SegmentSummary) -> _KeptPiece:
    contents = piece.contents
    assert not contents.extras, "an audit asks for no other analyses"
    events = contents.first_events
    return _KeptPiece(
        base_offset=piece.base_offset,
        size_bytes=piece.size_bytes,
        read_bytes=piece.read_bytes,
        cut_offset=piece.cut_offset,
        cut_batch_offset=piece.cut_batch_offset,
        tail_kind=piece.tail.kind.value,
        tail_position_bytes=piece.tail.position_bytes,
        tail_error=None if piece.tail.error is None else _kept_error(piece.tail.error),
        facts=contents.facts,
        commits_omitted=contents.commits_omitted,
        effect=_columns_of(contents.effect, _EFFECT_DTYPES),
        closes=_columns_of(contents.effect.closes, _CLOSE_DTYPES),
        events=None if events is None else _columns_of(events, _EVENT_DTYPES),
        newest_timestamp=-1 if events is None else events.newest_timestamp,
    )


def _summary(kept: _KeptPiece) -> SegmentSummary:
    closes = ClosedTransactions(**_arrays(kept.closes, _CLOSE_DTYPES))
    effect = SegmentEffect(**_arrays(kept.effect, _EFFECT_DTYPES), closes=closes)
    events = None
    if kept.events is not None:
        events = FirstEvents(**_arrays(kept.events, _EVENT_DTYPES), newest_timestamp=kept.newest_timestamp)
    error = None if kept.tail_error is None else _error(kept.tail_error)
    return SegmentSummary(
        base_offset=kept.base_offset,
        size_bytes=kept.size_bytes,
        read_bytes=kept.read_bytes,
        cut_offset=kept.cut_offset,
        cut_batch_offset=kept.cut_batch_offset,
        tail=Tail(TailKind(kept.tail_kind), kept.tail_position_bytes, error),
        contents=BatchContents(kept.facts, effect, kept.commits_omitted, events),
    )


_KINDS: dict[str, type[FormatError]] = {name: getattr(errors, name) for name in errors.__all__}


def _kept_error(error: FormatError) -> _KeptError:
    expected, found = (value if value is None or isinstance(value, int) else str(value) for value in (error.expected, error.found))
    return _KeptError(type(error).__name__, error.what, error.file, error.position, expected, found, error.unit)


def _error(kept: _KeptError) -> FormatError:
    kind = _KINDS[kept.kind]
    return kind(kept.what, file=kept.file, position=kept.position, expected=kept.expected, found=kept.found, unit=kept.unit)
