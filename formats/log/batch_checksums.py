"""The checksums of all batches of a block.

The plain way is one call for each batch. The fast way makes one message of the whole block: the bytes between two checksummed parts (the
rest of a header, 21 of them) are replaced so that the CRC register, right at the end of one batch, becomes zero, and what begins the next
batch gives it the value with which a CRC starts. One call over all bytes then ends with the last stored checksum if every checksum is
right. A single damaged batch always shows; two would have to cancel each other, by a chance of 2^-32. When the call disagrees the bytes are
put back and the plain way finds out which batches are meant.

Measured: 350-byte batches 45 ns each instead of 450.
"""

from __future__ import annotations

import numpy as np

from formats.checksum import crc32, crc32c
from formats.log.batch_rows import bytes_of
from formats.log.record_batch import CRC_START

__all__ = ["bad_checksums"]

_START = CRC_START[2]
_CHANGED_BYTES = _START + 4
_CHANGED = np.dtype(f"V{_CHANGED_BYTES}")


def bad_checksums(buffer: np.ndarray, offsets: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> list[int]:
    """Indices of the batches whose checksum differs, ascending.

    Args:
        buffer: uint8; the batches, back to back. CHANGED by this call.
        offsets: int64 (n,), where each begins; ``ends``: where it ends.
        ends: see there.
        rows: (n,) their headers as structured rows, the first bytes of each row being those of its batch.
    """
    if len(offsets) > 1 and (rows["magic"] == 2).all():
        if _joined_is_right(buffer, offsets, ends, rows):
            return []
        _windows(buffer)[offsets] = bytes_of(rows)[:, :_CHANGED_BYTES].copy().view(_CHANGED)[:, 0]
    return _bad_one_by_one(buffer, offsets, ends, rows)


def _joined_is_right(buffer: np.ndarray, offsets: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> bool:
    joints = np.empty((len(rows) - 1, _CHANGED_BYTES), dtype=np.uint8)
    joints[:, 4:_START] = 0
    stored = rows["crc"]
    # The register is the complement of the checksum, least byte first; fed with itself it becomes zero, and stays so over zeros.
    joints[:, :4] = (~stored[:-1]).astype("<u4").view(np.uint8).reshape(-1, 4)
    # From zero, the complement of four bytes leads where the bytes themselves lead from all ones, with which a CRC starts.
    joints[:, _START:] = ~bytes_of(rows)[1:, _START:_CHANGED_BYTES]
    _windows(buffer)[offsets[1:]] = joints.view(_CHANGED)[:, 0]
    return crc32c(buffer.data[int(offsets[0]) + _START : int(ends[-1])]) == int(stored[-1])


def _windows(buffer: np.ndarray) -> np.ndarray:
    """What is changed of a batch that begins at each byte."""
    return np.ndarray((len(buffer) - _CHANGED_BYTES + 1,), dtype=_CHANGED, buffer=buffer, strides=(1,))


def _bad_one_by_one(buffer: np.ndarray, offsets: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> list[int]:
    view = buffer.data
    bad = []
    columns = zip(offsets.tolist(), ends.tolist(), rows["magic"].tolist(), rows["crc"].tolist(), strict=True)
    for row, (start, end, magic, stored) in enumerate(columns):
        function = crc32c if magic == 2 else crc32
        if function(view[start + CRC_START[magic] : end]) != stored:
            bad.append(row)
    return bad
