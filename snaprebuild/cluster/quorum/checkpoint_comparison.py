"""Compares the checkpoints of a metadata log with the records of the log itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace

from formats.errors import FormatError
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import ConfigResource, MetadataImage, ResourceType
from snaprebuild.cluster.metadata.image_reader import fold_oldest
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch

__all__ = ["ComparedCheckpoint", "compare_with_log"]

_POSITION = {"offset", "epoch", "timestamp_ms", "quorum"}
"""Fields of an image that rules K6 to K8 judge, or that no checkpoint holds."""


@dataclass(frozen=True, slots=True)
class ComparedCheckpoint:
    """One checkpoint.

    Attributes:
        checkpoint: which.
        difference: in words; empty where it is equal to the log up to its end.
        unread: why a difference proves nothing: a record that this program cannot read. Else empty.
    """

    checkpoint: MetadataCheckpoint
    difference: str
    unread: str = ""


def compare_with_log(log: MetadataLog, owner: MetadataLog, whole: Collection[OffsetAndEpoch]) -> Iterator[ComparedCheckpoint]:
    """Folds the log, and compares what it results in with each checkpoint that ends between two of its batches.

    Damage, a gap or an oldest checkpoint that is not whole ends the comparison: K8 and K11 report these.

    Args:
        log: as it was listed.
        owner: of the checkpoints: the same log, or that of another node.
        whole: ids of the checkpoints to compare, which are whole.

    Raises:
        ReadFailedError: a file cannot be read, or is gone.
    """
    fold, _, _ = fold_oldest(log)
    start = fold.offset + 1
    if not log.segments or log.segments[0].base_offset > start:
        return
    ascending = sorted(owner.checkpoints, key=lambda each: each.end_offset)
    waiting = [each for each in ascending if each.end_offset > start and OffsetAndEpoch(each.end_offset, each.epoch) in whole]
    try:
        with log.walk(start).until() as batches:
            for batch in batches:
                while waiting and waiting[0].end_offset <= batch.base_offset:
                    yield from _compared(owner, fold, waiting.pop(0))
                if not waiting:
                    return
                fold.apply_batch(batch)
    except FormatError:
        return
    while waiting:
        yield from _compared(owner, fold, waiting.pop(0))


def _compared(owner: MetadataLog, fold: ImageFold, checkpoint: MetadataCheckpoint) -> Iterator[ComparedCheckpoint]:
    if checkpoint.end_offset != fold.offset + 1:
        return
    other = ImageFold()
    try:
        other.apply_checkpoint(owner.checkpoint_batches(checkpoint), checkpoint.end_offset, checkpoint.epoch)
    except FormatError:  # in its records, or it changed since it was found whole
        yield ComparedCheckpoint(checkpoint, "", "its records cannot be read")
        return
    unread = f"the log has {fold.fault_count} records that cannot be taken" if fold.fault_count else ""
    yield ComparedCheckpoint(checkpoint, _difference(_comparable(fold.image()), _comparable(other.image())), unread)


def _comparable(image: MetadataImage) -> MetadataImage:
    """Without configurations of topics that are gone: a node that takes creation and removal at once keeps these."""
    known = {key: value for key, value in image.configs.items() if value and _is_of_this_cluster(key, image)}
    return replace(image, configs=known)


def _is_of_this_cluster(resource: ConfigResource, image: MetadataImage) -> bool:
    return resource.type != ResourceType.TOPIC or resource.name in image.topic_ids


def _difference(by_log: MetadataImage, by_checkpoint: MetadataImage) -> str:
    parts = []
    for each in fields(MetadataImage):
        one, other = getattr(by_log, each.name), getattr(by_checkpoint, each.name)
        if each.name in _POSITION or one == other:
            continue
        if isinstance(one, dict):
            count = sum(one.get(key) != other.get(key) for key in one.keys() | other.keys())
            parts.append(f"{each.name} ({count})")
        else:
            parts.append(each.name)
    quorums = by_log.quorum, by_checkpoint.quorum
    if all(each.kraft_version for each in quorums) and quorums[0].voters != quorums[1].voters:
        parts.append("voters")
    return ", ".join(parts)
