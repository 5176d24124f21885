"""Questions to the leader epochs of a log: which epoch an offset is of, and where an epoch ends.

Source: ``LeaderEpochFileCache``; KIP-101.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from formats.partition.checkpoint_file import LeaderEpochEntry

__all__ = ["EpochEnd", "end_of_epoch", "epoch_of"]


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch, and the offset behind its last record."""

    epoch: int
    end_offset: int


def epoch_of(epochs: Sequence[LeaderEpochEntry], offset: int) -> int | None:
    """The leader epoch in which an offset was written, or would be; None for one before all of them."""
    before = None
    for entry in epochs:
        if entry.start_offset >= offset:
            return entry.epoch if entry.start_offset == offset else before
        before = entry.epoch
    return before


def end_of_epoch(epochs: Sequence[LeaderEpochEntry], epoch: int, log_end: int) -> EpochEnd | None:
    """What a leader answers to OffsetsForLeaderEpoch.

    Args:
        epochs: of its log, ascending.
        epoch: asked for.
        log_end: its log end offset.

    Returns:
        The asked epoch, or the one before it where the log has nothing of it, and where that ends; None where the log knows only earlier
        ones.
    """
    if epochs and epochs[-1].epoch == epoch:
        return EpochEnd(epoch, log_end)
    higher = next((entry for entry in epochs if entry.epoch > epoch), None)
    if higher is None or epoch < 0:
        return None
    floor = [entry.epoch for entry in epochs if entry.epoch <= epoch]
    return EpochEnd(floor[-1] if floor else epoch, higher.start_offset)
