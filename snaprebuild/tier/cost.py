"""Estimates what an audit reads, and what that costs, before anything but manifests is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from formats.remote.aiven_key import AivenObject
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.errors import RefusedError
from snaprebuild.storage.remote.listing import TierCopy, TierLayout
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES
from snaprebuild.tier.copies import CopyFacts

__all__ = ["COLD", "LOG_OF", "AuditCost", "CopyRead", "audit_cost", "refuse_cold", "refuse_cold_objects"]

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

COLD = ("STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE")
"""Where each byte that is read has a price of its own, or nothing can be read before it was restored."""

_SMALL_REQUESTS = {TierLayout.AIVEN: 16, TierLayout.LOCAL_TIERED_STORAGE: 5}
"""Requests for each copy of which nothing is known yet, without the ranges of its segment.

With Aiven's layout they are for the manifest, the identity and range of the snapshot and of the transaction index, and the same for three
indexes. They also are for the manifest and identity of the segment, whose end may be asked for twice. In a layout with separate files
they are for the small files alone.
"""

LOG_OF: dict[TierLayout, str] = {TierLayout.AIVEN: AivenObject.LOG, TierLayout.LOCAL_TIERED_STORAGE: LocalTierFile.LOG}


@dataclass(slots=True)
class CopyRead:
    """The reads of a copy.

    Attributes:
        parts: kind of object, bytes, and requests for them.
    """

    copy: TierCopy
    parts: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, kind: str, size_bytes: int) -> None:
        """A file, or a range of an object: in as many requests as its size takes; nothing without bytes."""
        if size_bytes:
            self.parts.append((kind, size_bytes, -(-size_bytes // RANGE_BYTES)))

    @classmethod
    def of(
        cls,
        layout: TierLayout,
        copy: TierCopy,
        facts: CopyFacts,
        *,
        segment: bool = False,
        compared: bool = False,
        snapshots: int = 0,
        index: bool = False,
        end: bool = False,
        time: bool = False,
    ) -> CopyRead:
        """The reads of a copy whose manifest was read.

        Args:
            layout: of the copy.
            copy: its objects.
            facts: of it.
            segment: it is read.
            compared: so are its indexes, which are compared with it.
            snapshots: how often its producer snapshot is.
            index: so is its transaction index.
            time: the end of its time index is read.
            end: so are the end of the segment, which only its batches have, and its leader epochs.
        """
        found = cls(copy)
        is_aiven = layout is TierLayout.AIVEN
        small: list[tuple[LocalTierFile, int]] = list(facts.compared) if compared else []
        if segment:
            found.add(LOG_OF[layout], copy.objects[LOG_OF[layout]].identity.size_bytes)
        small += [(LocalTierFile.PRODUCER_SNAPSHOT, facts.snapshot_bytes or 0)] * snapshots
        if index:
            small.append((LocalTierFile.TRANSACTION_INDEX, facts.index_bytes or 0))
        for kind, size in small:
            found.add(AivenObject.INDEXES if is_aiven else kind, size)
        if time:
            found.parts.append((AivenObject.INDEXES if is_aiven else LocalTierFile.TIME_INDEX, 0, 1))
        if end:
            files = (LocalTierFile.OFFSET_INDEX, LocalTierFile.LEADER_EPOCHS, LocalTierFile.TIME_INDEX)
            kinds = (LOG_OF[layout], *((AivenObject.INDEXES,) * len(files) if is_aiven else files))
            found.parts += [(kind, 0, 1) for kind in kinds]
        return found

    @classmethod
    def unknown(cls, layout: TierLayout, copy: TierCopy) -> CopyRead:
        """The reads of a copy whose manifest was not read yet: all of it."""
        found = cls(copy)
        found.add(LOG_OF[layout], copy.objects[LOG_OF[layout]].identity.size_bytes)
        for kind, each in copy.objects.items():
            if kind != LOG_OF[layout]:
                found.parts.append((kind, each.identity.size_bytes, 0))
        found.parts.append((LOG_OF[layout], 0, _SMALL_REQUESTS[layout]))
        return found


@dataclass(frozen=True, slots=True)
class AuditCost:
    """An estimate.

    Attributes:
        copies: whose segments are read.
        objects: that are read, whole or in part.
        requests: upper bound, if none has to be repeated.
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
        return {name: size for name, size in self.storage_classes.items() if name in COLD}


def audit_cost(reads: Iterable[CopyRead]) -> AuditCost:
    """Adds up what is read of some copies."""
    copies = objects = requests = size = 0
    classes: Counter[str] = Counter()
    requests_of: Counter[str] = Counter()
    for read in reads:
        copies += bool(read.parts)
        objects += len({kind for kind, _, _ in read.parts})
        for kind, part_bytes, part_requests in read.parts:
            requests += part_requests
            size += part_bytes
            storage_class = read.copy.objects[kind].storage_class
            if storage_class is not None:
                classes[storage_class] += part_bytes
                requests_of[storage_class] += part_requests
    dollars = None
    if classes and all(name in _PRICES for name in classes):
        bytes_dollars = sum(_PRICES[name][1] * count / 1e9 for name, count in classes.items())
        dollars = bytes_dollars + sum(_PRICES[name][0] * count / 1e3 for name, count in requests_of.items())
    return AuditCost(copies, objects, requests, size, dict(sorted(classes.items())), dollars)


def refuse_cold(cost: AuditCost, max_read_bytes: int | None, place: str) -> None:
    """Refuses to read cold storage classes without a limit of bytes.

    Raises:
        RefusedError: some are cold, and the run has no limit of bytes.
    """
    _refuse(cost.cold, max_read_bytes, place)


def refuse_cold_objects(copies: Iterable[TierCopy], max_read_bytes: int | None, place: str) -> None:
    """The same by the listing alone, before even a manifest is read.

    Raises:
        RefusedError: as ``refuse_cold``.
    """
    sizes: Counter[str] = Counter()
    for each in (each for copy in copies for each in copy.objects.values() if each.storage_class in COLD):
        assert each.storage_class is not None
        sizes[each.storage_class] += each.identity.size_bytes
    _refuse(dict(sorted(sizes.items())), max_read_bytes, place)


def _refuse(cold: dict[str, int], max_read_bytes: int | None, place: str) -> None:
    if cold and max_read_bytes is None:
        named = ", ".join(f"{size} bytes in {name}" for name, size in cold.items())
        message = f"{named}: to read them is charged for each byte, or takes a restore first: allow a number with max_read_bytes"
        raise RefusedError(message, path=place)
