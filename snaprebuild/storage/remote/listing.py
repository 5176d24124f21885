"""The copies of segments in remote storage, from one listing of their store: by partition, by copy, with the objects of each.

Two layouts are known: that of Aiven's plugin, and that of Kafka's own ``LocalTieredStorage``. No object is opened here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice

from formats.partition.file_names import FileKind, FileSuffix, parse_file_name
from formats.remote.object_names import AivenKey, LocalTierName, parse_aiven_key, parse_local_tier_name
from formats.remote.remote_log_metadata import TopicIdPartition
from formats.remote.upload_claim import ClaimKey, parse_claim_key
from snaprebuild.errors import UsageError
from snaprebuild.storage.store import FileIdentity, Status
from snaprebuild.storage.store_path import StorePath

__all__ = [
    "CopyObjects",
    "ListedPartition",
    "TierLayout",
    "TierObject",
    "UnknownObjects",
    "holds_copies",
    "list_tier",
    "merged",
    "split_key_prefix",
]

COPIES_MAX = 4_000_000
"""Objects of a listing, which is in memory: some 1 KB each."""

KEYS_ASKED = 1000
"""Keys of a listing that shows what is at a location, and whether keys begin with its last part: one request."""

_OLD_AIVEN = re.compile(r"[0-9]{20}-[A-Za-z0-9_-]{22}\.(?:index|timeindex|txnindex|snapshot|leader-epoch-checkpoint)", re.ASCII)
"""Each index was an object of its own until October 2023."""


class TierLayout(StrEnum):
    """The writer of the objects."""

    AIVEN = "aiven"
    LOCAL_TIERED_STORAGE = "local-tiered-storage"


@dataclass(frozen=True, slots=True)
class TierObject:
    """An object, or a file.

    Attributes:
        key: below the root of the listing.
        identity: as it was listed.
        storage_class: as it was listed; None for a file.
        data: its bytes, if they were read already.
        archive_tier: of INTELLIGENT_TIERING, in which it must be restored before it can be read; None for no such tier, and where no
            request was sent for it.
    """

    key: str
    identity: FileIdentity
    storage_class: str | None = None
    data: bytes | None = None
    archive_tier: str | None = None


@dataclass(frozen=True, slots=True)
class CopyObjects:
    """The objects of one copy of a segment: of one attempt at copying it.

    Attributes:
        base_offset: of the segment.
        segment_id: 16 bytes.
        by_kind: the objects, by kind (``AivenObject``, ``LocalTierFile``), those that are there.
        others: further objects of the same kinds: the copy is below several prefixes, for example in a backup.
    """

    base_offset: int
    segment_id: bytes
    by_kind: dict[str, TierObject]
    others: list[TierObject] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its objects."""
        return sum(each.identity.size_bytes for each in self.by_kind.values())


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """The objects of the copies of one partition.

    Attributes:
        layout: of the objects.
        head: the text before the topic id in the keys: the topic, and in Aiven's layout ``key.prefix`` before it.
        topic_id: 16 bytes.
        partition: number.
        copies: by base offset, then in the order of the listing.
        named: topic, as a manifest names it, or as ``key.prefix`` leaves it; None if neither is known.
    """

    layout: TierLayout
    head: str
    topic_id: bytes
    partition: int
    copies: tuple[CopyObjects, ...]
    named: str | None = None

    @property
    def topic(self) -> str:
        """Topic. Without ``named`` a prefix that does not end with a slash is part of it."""
        return self.head.rpartition("/")[2] if self.named is None else self.named

    @property
    def id(self) -> TopicIdPartition:
        """Topic, topic id and number. The topic id alone names no topic: with a protocol older than 2.8 all have the id zero."""
        return TopicIdPartition(self.topic, self.topic_id, self.partition)


@dataclass(slots=True)
class UnknownObjects:
    """Objects of no known layout.

    Attributes:
        count: number of objects.
        first: key of the first one.
        old_aiven: keys of a plugin of before October 2023 among them, whose layout cannot be read.
        claims: keys of claims of ``tier upload``, which are known and not counted.
        size_bytes: of all these objects, with claims.
        objects: all of them, with claims; empty unless they are asked for.
        keeps_objects: they are asked for.
    """

    count: int = 0
    first: str = ""
    old_aiven: int = 0
    claims: list[ClaimKey] = field(default_factory=list)
    size_bytes: int = 0
    objects: list[TierObject] = field(default_factory=list)
    keeps_objects: bool = False

    def add(self, key: str, status: Status) -> None:
        """Counts one, or keeps a claim."""
        self.size_bytes += status.st_size
        if self.keeps_objects:
            self.objects.append(TierObject(key, FileIdentity.of(status), getattr(status, "st_storage_class", None)))
        claim = parse_claim_key(key)
        if claim is not None and len(self.claims) < COPIES_MAX:
            self.claims.append(claim)
            return
        self.count += 1
        self.first = self.first or key
        self.old_aiven += _OLD_AIVEN.fullmatch(os.path.basename(key)) is not None


@dataclass(frozen=True, slots=True)
class _Named:
    """An object whose name is understood."""

    partition: tuple[TierLayout, str, bytes, int]
    base_offset: int
    segment_id: bytes
    kind: str
    object: TierObject


def holds_copies(root: StorePath) -> bool:
    """Whether copies of segments are at a location, and no partition directory, as far as the first keys show.

    Args:
        root: without a slash at its end.

    Raises:
        ReadFailedError: it cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    root, prefix = split_key_prefix(root)
    if prefix:
        return True
    if root.is_local and not os.path.isdir(root.path):
        return False
    has_copy = False
    for key, _ in islice(root.list_below(), KEYS_ASKED):
        name = parse_file_name(os.path.basename(key))
        if name is not None and name.kind is FileKind.LOG and name.suffix is FileSuffix.NONE:
            return False
        has_copy = has_copy or _parsed(key) is not None
    return has_copy


def split_key_prefix(root: StorePath) -> tuple[StorePath, str]:
    """Splits off the last part of a location if it is no directory, but the beginning of keys: (location above, prefix).

    Such a part is a ``key.prefix`` without a slash. Others stay as they are, with an empty prefix. A directory with that name
    contains more than keys that begin with it.

    Args:
        root: without a slash at its end.

    Raises:
        ReadFailedError: it cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    above, _, prefix = root.path.rpartition("/")
    if not prefix or above in ("", "s3:/"):
        return root, ""
    if root.is_local:
        is_whole = os.path.isdir(root.path) or not os.path.isdir(above)
    else:
        is_whole = next(iter(root.list_below()), None) is not None
    if is_whole:
        return root, ""
    for key, _ in islice(root.at(above).list_below(prefix), KEYS_ASKED):
        name = parse_aiven_key(key)
        if name is not None and "/" not in name.head:
            return root.at(above), prefix
    return root, ""


def list_tier(root: StorePath, unknown: UnknownObjects, key_prefix: str) -> list[ListedPartition]:
    """The partitions below each prefix of a location, in the order of their first keys.

    Args:
        root: without a slash at its end.
        unknown: gets the objects that are left out.
        key_prefix: of the plugin, below the location; other names are ignored.

    Raises:
        UsageError: there are more copies than any cluster makes.
        ReadFailedError: it cannot be listed.
        RefusedError: a limit of the run is used up.
    """
    partitions: dict[tuple[TierLayout, str, bytes, int], dict[bytes, CopyObjects]] = {}
    count = 0
    for each in _named(root.list_below(key_prefix), unknown):
        copies = partitions.setdefault(each.partition, {})
        if each.segment_id not in copies:
            copies[each.segment_id] = CopyObjects(each.base_offset, each.segment_id, {})
            count += 1
            if count > COPIES_MAX:
                raise UsageError(f"has more than {COPIES_MAX} copies of segments: name a part of it", path=root.path)
        copy = copies[each.segment_id]
        if each.kind in copy.by_kind:
            copy.others.append(copy.by_kind[each.kind])
        copy.by_kind[each.kind] = each.object
    listed = []
    for (layout, head, topic_id, partition), copies in partitions.items():
        ascending = tuple(sorted(copies.values(), key=lambda copy: copy.base_offset))
        below_prefix = head.removeprefix(key_prefix) if key_prefix else None
        listed.append(ListedPartition(layout, head, topic_id, partition, ascending, below_prefix))
    return listed


def merged(partitions: Iterable[ListedPartition]) -> list[ListedPartition]:
    """The partitions of one listing, each once: objects of one partition may be below several prefixes, for example in a backup.

    Args:
        partitions: with the names of their topics.
    """
    by_id: dict[tuple[TierLayout, TopicIdPartition], ListedPartition] = {}
    for each in partitions:
        place = each.layout, each.id
        by_id[place] = _joined(by_id[place], each) if place in by_id else each
    return list(by_id.values())


def _joined(first: ListedPartition, other: ListedPartition) -> ListedPartition:
    copies = {copy.segment_id: copy for copy in first.copies}
    for copy in other.copies:
        same = copies.setdefault(copy.segment_id, copy)
        if same is not copy:
            same.others.extend(each for kind, each in copy.by_kind.items() if kind in same.by_kind)
            same.others.extend(copy.others)
            for kind, each in copy.by_kind.items():
                same.by_kind.setdefault(kind, each)
    return replace(first, copies=tuple(sorted(copies.values(), key=lambda copy: copy.base_offset)))


def _named(listing: Iterable[tuple[str, Status]], unknown: UnknownObjects) -> Iterator[_Named]:
    for key, status in listing:
        parsed = _parsed(key)
        if parsed is None:
            unknown.add(key, status)
            continue
        layout = TierLayout.AIVEN if isinstance(parsed, AivenKey) else TierLayout.LOCAL_TIERED_STORAGE
        head = parsed.head if isinstance(parsed, AivenKey) else parsed.topic
        place = (layout, head, parsed.topic_id, parsed.partition)
        listed = TierObject(key, FileIdentity.of(status), getattr(status, "st_storage_class", None))
        yield _Named(place, parsed.base_offset, parsed.segment_id, parsed.kind, listed)


def _parsed(key: str) -> AivenKey | LocalTierName | None:
    """The name of an object of a copy; None for another object."""
    aiven = parse_aiven_key(key)
    # A directory of LocalTieredStorage is below one of its own, or of the user's.
    return parse_local_tier_name("/".join(key.split("/")[-2:])) if aiven is None else aiven
