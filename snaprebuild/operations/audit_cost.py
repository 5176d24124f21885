"""What an audit is going to read, and what that costs, told before the first segment is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from formats.aiven_key import AivenObject
from formats.local_tier_name import LocalTierFile
from snaprebuild.errors import RefusedError
from snaprebuild.storage.object_bytes import RANGE_BYTES
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.tier_listing import TierCopy, TierLayout

__all__ = ["AuditCost", "audit_cost", "refuse_cold"]

_USUAL = "STANDARD"

_PRICES = {
    _USUAL: (0.0004, 0.0),
    "STANDARD_IA": (0.001, 0.01),
    "ONEZONE_IA": (0.001, 0.01),
    "GLACIER_IR": (0.01, 0.03),
    "GLACIER": (0.0004, 0.01),
    "DEEP_ARCHIVE": (0.0004, 0.02),
}
"""US dollars for 1,000 GETs and for 10^9 bytes read, by storage class: list prices of one region as commonly published, assumed and not
asked for. Transfer out of the region is not in them."""

_COLD = ("STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE")
"""Where each byte that is read has a price of its own, or nothing can be read before it was restored."""

_SMALL_REQUESTS = {TierLayout.AIVEN: 10, TierLayout.LOCAL_TIERED_STORAGE: 2}
"""For each copy, beside the ranges of its segment: manifest, identity and range of the snapshot and of the transaction index, and the
manifest and identity of the segment, whose end some are asked for twice; in files of their own the two alone."""

_LOG: dict[TierLayout, str] = {TierLayout.AIVEN: AivenObject.LOG, TierLayout.LOCAL_TIERED_STORAGE: LocalTierFile.LOG}


@dataclass(frozen=True, slots=True)
class AuditCost:
    """An estimate.

    Attributes:
        copies: whose segments are read.
        objects: of these copies.
        requests: about so many.
        read_bytes: of segments and what belongs to them, as they are stored.
        storage_classes: bytes of these objects by storage class; empty where the store has none, as a directory.
        dollars: by list prices, without transfer; None where the store has no classes, or one of unknown price.
    """

    copies: int
    objects: int
    requests: int
    read_bytes: int
    storage_classes: dict[str, int]
    dollars: float | None

    @property
    def cold(self) -> dict[str, int]:
        """Those of the classes that are cold."""
        return {name: size for name, size in self.storage_classes.items() if name in _COLD}


def audit_cost(read: Iterable[tuple[TierLayout, TierCopy]]) -> AuditCost:
    """Of the copies whose segments are to be read."""
    copies = objects = requests = size = 0
    classes: Counter[str] = Counter()
    requests_of: Counter[str] = Counter()
    for layout, copy in read:
        copies += 1
        objects += len(copy.objects)
        log = copy.objects[_LOG[layout]]
        mine = -(-log.identity.size_bytes // RANGE_BYTES) + _SMALL_REQUESTS[layout]
        requests += mine
        size += copy.size_bytes
        for each in copy.objects.values():
            if each.storage_class is not None:
                classes[each.storage_class] += each.identity.size_bytes
        if log.storage_class is not None:
            requests_of[log.storage_class] += mine
    dollars = None
    if classes and all(name in _PRICES for name in classes):
        reads = sum(_PRICES[name][1] * count / 1e9 for name, count in classes.items())
        dollars = reads + sum(_PRICES[name][0] * count / 1e3 for name, count in requests_of.items())
    return AuditCost(copies, objects, requests, size, dict(sorted(classes.items())), dollars)


def refuse_cold(cost: AuditCost, settings: S3Settings | None, place: str) -> None:
    """Cold storage classes are read only where somebody says how much.

    Raises:
        RefusedError: some are cold, and the settings have no limit of bytes.
    """
    if cost.cold and (settings is None or settings.max_read_bytes is None):
        named = ", ".join(f"{size} bytes in {name}" for name, size in cost.cold.items())
        message = f"{named}: to read them is charged for each byte, or takes a restore first: --max-read-bytes says how many may be"
        raise RefusedError(message, path=place)
