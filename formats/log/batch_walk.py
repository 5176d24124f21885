"""Where the batches of a block of bytes begin.

Only the length of a batch shows where the next one begins, so the plain walk is a chain of dependent loads.
The fast walk guesses seeds, from the offset index or by a search for bytes that look like a header. It follows the chains from all
seeds at once, in lock-step.
Its result is a guess until ``chain_end`` has shown that, from the first byte on, each batch ends exactly where the next one begins.
Then it equals the plain walk. A wrong seed costs time and never changes the result.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

from formats.errors import BadLengthError, FormatError
from formats.limits import BATCH_HEADER_BYTES_MAX
from formats.log.record_batch import ATTRIBUTE_CONTROL, LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC_POSITION

__all__ = [
    "LOOK_BYTES",
    "SAMPLED_BATCHES",
    "chain_end",
    "plain_log_end",
    "seeds_from_hints",
    "seeds_from_search",
    "walk_by_length",
    "walk_from_seeds",
]

LOOK_BYTES = MAGIC_POSITION + 2
"""``FileLogInputStream`` reads a length only if more than the 17 bytes up to the magic are left."""

SEEDS_MIN = 16
"""Fewer seeds in a block than this do not pay for the array operations."""

STEPS_MAX = 256
"""Batches between two seeds; with entries further apart (or wrong) the next best way is used. A broker indexes every 4 KiB."""

SEARCHED_BATCH_BYTES_MAX = 8 << 10
"""Above this mean size the search for the next header takes longer than the plain walk, which needs about 150 ns a batch."""

BATCHES_BETWEEN_SEEDS = 24
"""For a search: a seed costs about 300 ns and half a batch of searching, a step of the walk a few microseconds for all seeds."""

SAMPLED_BATCHES = 16
"""From which the mean size is estimated."""

LEADER_EPOCH_POSITION = 12
_INT32 = Struct(">i").unpack_from
_LOG_END_FIELDS = Struct(">qi4xb4xhi").unpack_from
"""Unpacks fields of ``RECORD_BATCH_HEADER``: base offset, length, magic, attributes, last offset delta."""


def walk_by_length(
    data: bytearray | memoryview, filled: int, length_position: int, name: str = "", position: int = 0, most: int | None = None
) -> tuple[np.ndarray, int, FormatError | None]:
    """The plain walk, one batch after the other.

    Args:
        data: holds ``filled`` bytes; a batch begins at the first.
        filled: number of valid bytes in ``data``.
        length_position: of the length in a header.
        name: of the file, for errors.
        position: of the first byte in the file, for errors.
        most: number of batches after which the walk ends.

    Returns:
        The offsets of the whole batches (int64), the end of the last of them, and the length on which a broker throws, or None.
    """
    offsets: list[int] = []
    at = 0
    last_look = filled - LOOK_BYTES
    error: FormatError | None = None
    while at <= last_look and len(offsets) != most:
        length = _INT32(data, at + length_position)[0]
        if length < LENGTH_MIN[0]:
            expected = f"at least {LENGTH_MIN[0]}"
            error = BadLengthError("length of a batch", file=name, position=position + at + 8, expected=expected, found=length)
            break
        end = at + LOG_OVERHEAD_BYTES + length
        if end > filled:
            break
        offsets.append(at)
        at = end
    return np.asarray(offsets, dtype=np.int64), at, error


def seeds_from_hints(hint: np.ndarray, position: int, filled: int) -> np.ndarray | None:
    """The hints (positions in the file) inside ``filled`` bytes from ``position``, relative to it; None if they are useless."""
    first, last = np.searchsorted(hint, (position, position + filled))
    seeds = hint[first:last].astype(np.int64) - position
    if len(seeds) < SEEDS_MIN or seeds[0] < 0 or seeds[-1] >= filled or not (seeds[1:] > seeds[:-1]).all():
        return None
    return seeds


def seeds_from_search(data: bytearray, buffer: np.ndarray, filled: int, length_position: int) -> np.ndarray | None:
    """Where batches of magic 2 seem to begin: where leader epoch and magic equal those of the first header. None if not useful."""
    sample, end, _ = walk_by_length(data, filled, length_position, most=SAMPLED_BATCHES)
    if len(sample) < SAMPLED_BATCHES or data[MAGIC_POSITION] != 2:
        return None
    mean = end // len(sample)
    step = mean * BATCHES_BETWEEN_SEEDS
    if mean > SEARCHED_BATCH_BYTES_MAX or filled < step * SEEDS_MIN:
        return None
    pattern = bytes(data[LEADER_EPOCH_POSITION : MAGIC_POSITION + 1])
    find = data.find
    matches = [find(pattern, at, at + step) for at in range(step + LEADER_EPOCH_POSITION, filled - step, step)]
    seeds = np.asarray(matches, dtype=np.int64) - LEADER_EPOCH_POSITION
    seeds = seeds[seeds >= 0]
    # The pattern is short, and occurs in other bytes, too: a true seed leads to another one.
    patterns = np.ndarray(
        (len(buffer) - MAGIC_POSITION,), dtype=f"V{len(pattern)}", buffer=buffer, offset=LEADER_EPOCH_POSITION, strides=(1,)
    )
    following = np.minimum(seeds + LOG_OVERHEAD_BYTES + _lengths(buffer, length_position)[seeds], filled)
    true_ones: np.ndarray = seeds[patterns[following] == patterns[0]]
    return true_ones


def _lengths(buffer: np.ndarray, length_position: int) -> np.ndarray:
    """The length of a batch at every byte. Unsigned: a negative length leads far ahead, to a bound, and never back."""
    return np.ndarray((len(buffer) - length_position - 3,), dtype=">u4", buffer=buffer, offset=length_position, strides=(1,))


def walk_from_seeds(buffer: np.ndarray, filled: int, seeds: np.ndarray, length_position: int) -> np.ndarray | None:
    """Follows the lengths from the first byte and from every seed at once, each as far as the next seed.

    Every step moves all chains, by independent loads. A chain that has reached its bound stays there: removing it would cost more.

    Args:
        buffer: uint8, at least a header longer than ``filled``.
        filled: bytes of the block.
        seeds: int64, strictly ascending, in [0, filled).
        length_position: of the length in a header.

    Returns:
        Ascending offsets (int64), a guess; None when a chain is too long.
    """
    if not len(seeds) or seeds[0] != 0:
        seeds = np.concatenate((np.zeros(1, dtype=np.int64), seeds))
    bounds = np.append(seeds[1:], filled)
    lengths = _lengths(buffer, length_position)
    steps = [seeds]
    at = seeds
    while True:
        at = lengths[at] + (at + LOG_OVERHEAD_BYTES)
        np.minimum(at, bounds, out=at)
        # The comparison costs as much as the step, so only every fourth time, and at first: an index may have nearly every batch.
        if (len(steps) <= 2 or len(steps) % 4 == 0) and (at == bounds).all():
            break
        if len(steps) >= STEPS_MAX:
            return None
        steps.append(at)
    chains = np.array(steps).T
    offsets: np.ndarray = chains[chains < bounds[:, None]]
    return offsets


def chain_end(offsets: np.ndarray, lengths: np.ndarray, filled: int) -> tuple[int, int] | None:
    """Whether ``offsets`` are those of the plain walk: from 0 on, each batch ending where the next begins, up to the end of the block.

    Args:
        offsets: int64, ascending.
        lengths: int64, of each header.
        filled: bytes of the block.

    Returns:
        The count of whole batches and the end of the last one; None if the offsets are not those, or a broker throws on a length.
    """
    ends = offsets + (lengths + LOG_OVERHEAD_BYTES)
    if offsets[0] != 0 or not np.array_equal(ends[:-1], offsets[1:]):
        return None
    count = len(offsets)
    # The bytes at the end may hold the beginning of a batch, and before that of one which is not whole.
    while count and (offsets[count - 1] + LOOK_BYTES > filled or ends[count - 1] > filled):
        count -= 1
    if count and lengths[:count].min() < LENGTH_MIN[0]:
        return None
    if count < len(offsets) and offsets[count] + LOOK_BYTES <= filled and lengths[count] < LENGTH_MIN[0]:
        return None
    return count, int(ends[count - 1]) if count else 0


def plain_log_end(data: bytes | bytearray) -> tuple[int, int] | None:
    """The offset after the last batch of a small segment that has nothing unusual in it, by the lengths.

    A segment of a few batches takes less time batch by batch than any array operation has as its fixed cost.

    Args:
        data: the whole segment.

    Returns:
        That offset, and where the last batch begins in the segment. None unless all bytes belong to whole batches of magic 2 that are
        no control batches: then ``batch_headers.HeaderReader`` shows what there is.
    """
    at = last = end = 0
    size = len(data)
    while size - at >= BATCH_HEADER_BYTES_MAX:
        base_offset, length, magic, attributes, delta = _LOG_END_FIELDS(data, at)
        if magic != 2 or length < LENGTH_MIN[2] or attributes & ATTRIBUTE_CONTROL:
            return None
        last = at
        end = base_offset + delta + 1
        at += LOG_OVERHEAD_BYTES + length
    if at == size and size:
        return (end, last)
    return None
