"""The leader epochs of a log: which epoch an offset is of, and where an epoch ends. Help texts load it: it needs no numpy.

Source: ``LeaderEpochFileCache``; KIP-101.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.partition.checkpoint_file import LeaderEpochEntry

__all__ = ["EpochEnd", "end_of_epoch", "epoch_of"]


class EpochEnd(msgspec.Struct, frozen=True):
    """A leader epoch, and the offset after its last record."""

    epoch: int
    end_offset: int


def epoch_of(epochs: Sequence[LeaderEpochEntry], offset: int) -> int | None:
    """The leader epoch in which an offset was written, or would be; None for an offset before all epochs."""
    before = None
    for entry in epochs:
        if entry.start_offset >= offset:
            return entry.epoch if entry.start_offset == offset else before
        before = entry.epoch
    return before


def end_of_epoch(epochs: Sequence[LeaderEpochEntry], epoch: int, log_end: int) -> EpochEnd | None:
    """The answer of a leader to OffsetsForLeaderEpoch.

    Args:
        epochs: of its log, ascending.
        epoch: the requested one.
        log_end: its log end offset.

    Returns:
        The requested epoch and its end, or those of the epoch before it if the log has no record of it; None if the log has only earlier
        epochs.
    """
    if epochs and epochs[-1].epoch == epoch:
        return EpochEnd(epoch, log_end)
    higher = next((entry for entry in epochs if entry.epoch > epoch), None)
    if higher is None or epoch < 0:
        return None
    floor = [entry.epoch for entry in epochs if entry.epoch <= epoch]
    return EpochEnd(floor[-1] if floor else epoch, higher.start_offset)
