"""Estimates what an audit reads, and what that costs, before anything but manifests is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from formats.remote.object_names import AivenObject, LocalTierFile
from snaprebuild.errors import RefusedError
from snaprebuild.published import Natural, Part, Seconds
from snaprebuild.storage.remote.listing import CopyObjects, TierLayout
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES
from snaprebuild.tier.remote_partition import LOG_OF, RemoteCopy

__all__ = ["COLD", "AuditCost", "CopyRead", "audit_cost", "cold_bytes", "refuse_cold"]

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

DOLLAR_DIGITS = 12
"""Decimal places, so that JSON has no rounding errors of the sums."""

_SMALL_REQUESTS = {TierLayout.AIVEN: 16, TierLayout.LOCAL_TIERED_STORAGE: 5}
"""Requests for each copy of which nothing is known yet, without the ranges of its segment.

With Aiven's layout they are for the manifest, the identity and range of the snapshot and of the transaction index, and the same for three
indexes. They also are for the manifest and identity of the segment, whose end may be asked for twice. In a layout with separate files
they are for the small files alone.
"""


@dataclass(slots=True)
class CopyRead:
    """The reads of a copy.

    Attributes:
        parts: kind of object, bytes, and requests for them.
    """

    copy: RemoteCopy
    parts: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, kind: str, size_bytes: int) -> None:
        """A file, or a range of an object: in as many requests as its size takes; nothing without bytes."""
        if size_bytes:
            self.parts.append((kind, size_bytes, -(-size_bytes // RANGE_BYTES)))

    def add_segment(self) -> None:
        """The whole segment, once more if it is there already."""
        log = LOG_OF[self.copy.layout]
        self.add(log, self.copy.objects.by_kind[log].identity.size_bytes)

    @classmethod
    def of(
        cls,
        copy: RemoteCopy,
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
            copy: with facts.
            segment: the whole segment is read.
            compared: offset index, time index and leader epochs are read, to be compared with the segment.
            snapshots: how often the producer snapshot is read.
            index: the transaction index is read.
            end: the end of the segment, which only its batches have, and its leader epochs are read.
            time: the end of the time index is read.
        """
        read = cls(copy)
        facts = copy.facts
        log = LOG_OF[copy.layout]
        is_aiven = copy.layout is TierLayout.AIVEN
        small: list[tuple[LocalTierFile, int]] = list(facts.compared) if compared else []
        if segment:
            read.add_segment()
        small += [(LocalTierFile.PRODUCER_SNAPSHOT, facts.snapshot_bytes or 0)] * snapshots
        if index:
            small.append((LocalTierFile.TRANSACTION_INDEX, facts.index_bytes or 0))
        for kind, size in small:
            read.add(AivenObject.INDEXES if is_aiven else kind, size)
        if time:
            read.parts.append((AivenObject.INDEXES if is_aiven else LocalTierFile.TIME_INDEX, 0, 1))
        if end:
            files = (LocalTierFile.OFFSET_INDEX, LocalTierFile.LEADER_EPOCHS, LocalTierFile.TIME_INDEX)
            kinds = (log, *((AivenObject.INDEXES,) * len(files) if is_aiven else files))
            read.parts += [(kind, 0, 1) for kind in kinds]
        return read

    @classmethod
    def unknown(cls, copy: RemoteCopy) -> CopyRead:
        """The reads of a copy whose manifest was not read yet: all of it."""
        read = cls(copy)
        log = LOG_OF[copy.layout]
        read.add(log, copy.objects.by_kind[log].identity.size_bytes)
        for kind, each in copy.objects.by_kind.items():
            if kind != log:
                read.parts.append((kind, each.identity.size_bytes, 0))
        read.parts.append((log, 0, _SMALL_REQUESTS[copy.layout]))
        return read


class AuditCost(Part, frozen=True):
    """Cost of the copies that are read, estimated."""

    copies: Natural
    """Copies whose objects are read."""
    objects: Natural
    """Objects that are read, in part or as a whole."""
    requests: Natural
    """The most that are sent, if none must be repeated."""
    read_bytes: Natural
    """Stored bytes that are read."""
    storage_classes: dict[str, Natural]
    """Bytes by storage class; empty if the store has none."""
    dollars: Seconds | None
    """US dollars by assumed list prices, without transfer; null if a price is not known."""

    @property
    def cold(self) -> dict[str, int]:
        """Bytes of the cold storage classes."""
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
            storage_class = read.copy.objects.by_kind[kind].storage_class
            if storage_class is not None:
                classes[storage_class] += part_bytes
                requests_of[storage_class] += part_requests
    dollars = None
    if classes and all(name in _PRICES for name in classes):
        bytes_dollars = sum(_PRICES[name][1] * count / 1e9 for name, count in classes.items())
        dollars = bytes_dollars + sum(_PRICES[name][0] * count / 1e3 for name, count in requests_of.items())
    return AuditCost(
        copies=copies,
        objects=objects,
        requests=requests,
        read_bytes=size,
        storage_classes=dict(sorted(classes.items())),
        dollars=None if dollars is None else round(dollars, DOLLAR_DIGITS),
    )


def cold_bytes(copies: Iterable[CopyObjects]) -> dict[str, int]:
    """Bytes of all objects in cold storage classes, by class, as the listing alone shows them."""
    sizes: Counter[str] = Counter()
    for copy in copies:
        for each in copy.by_kind.values():
            if each.storage_class is not None and each.storage_class in COLD:
                sizes[each.storage_class] += each.identity.size_bytes
    return dict(sorted(sizes.items()))


def refuse_cold(cold: Mapping[str, int], max_read_bytes: int | None, place: str) -> None:
    """Refuses to read cold storage classes without a limit of bytes.

    Args:
        cold: bytes that would be read, by storage class; only cold ones.
        max_read_bytes: limit of the run; None for none.
        place: of the objects.

    Raises:
        RefusedError: some are cold, and the run has no limit of bytes.
    """
    if cold and max_read_bytes is None:
        named = ", ".join(f"{size} bytes in {name}" for name, size in cold.items())
        message = f"{named}: to read them is charged for each byte, or takes a restore first: allow a number with max_read_bytes"
        raise RefusedError(message, path=place)
