"""Costs and leader epochs of copies in remote storage, for the verbs that read them."""

from __future__ import annotations

from collections.abc import Iterable

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.cli.result import size_text
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.documents.tier import Estimate, LeaderEpoch
from snaprebuild.findings import pluralize
from snaprebuild.tier.cost import AuditCost

__all__ = [
    "announced",
    "estimate_of",
    "leader_epochs_of",
]


def leader_epochs_of(entries: Iterable[LeaderEpochEntry]) -> list[LeaderEpoch]:
    """For the document."""
    return [LeaderEpoch(epoch=each.epoch, start_offset=each.start_offset) for each in entries]


def announced(cost: AuditCost) -> None:
    """Prints on stderr what will be read."""
    classes = ", ".join(f"{name} {size_text(size)}" for name, size in cost.storage_classes.items())
    price = "" if cost.dollars is None else f", about {cost.dollars:.2f} USD by list prices without transfer"
    what = f"{pluralize(cost.copies, 'copy', 'copies')}, {pluralize(cost.objects, 'object')}, {size_text(cost.read_bytes)}"
    if classes:
        what += f" ({classes}), about {pluralize(cost.requests, 'request')}{price}"
    print_on_stderr(f"to be read: {what}")


def estimate_of(cost: AuditCost | None) -> Estimate | None:
    """For the document."""
    if cost is None:
        return None
    return Estimate(
        copies=cost.copies,
        objects=cost.objects,
        requests=cost.requests,
        read_bytes=cost.read_bytes,
        storage_classes=cost.storage_classes,
        dollars=cost.dollars if cost.dollars is None else round(cost.dollars, 6),
    )
