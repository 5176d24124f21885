"""Costs and leader epochs of copies in remote storage, for the verbs that read them."""

from __future__ import annotations

from snaprebuild.cli.result import size_text
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.findings import pluralize
from snaprebuild.tier.cost import AuditCost

__all__ = ["announced"]


def announced(cost: AuditCost) -> None:
    """Prints on stderr what will be read."""
    classes = ", ".join(f"{name} {size_text(size)}" for name, size in cost.storage_classes.items())
    price = "" if cost.dollars is None else f", about {cost.dollars:.2f} USD by list prices without transfer"
    what = f"{pluralize(cost.copies, 'copy', 'copies')}, {pluralize(cost.objects, 'object')}, {size_text(cost.read_bytes)}"
    if classes:
        what += f" ({classes}), about {pluralize(cost.requests, 'request')}{price}"
    print_on_stderr(f"to be read: {what}")
