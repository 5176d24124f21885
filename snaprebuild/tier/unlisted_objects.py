"""Requests the objects of finished copies that a listing does not have, before anybody concludes that they are lost.

A listing may be older than a copy, incomplete, or of another prefix. A request for the key itself decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from formats.remote.aiven_key import AivenKey, AivenObject, aiven_key, parse_aiven_key
from formats.remote.local_tier_name import LocalTierFile, LocalTierName
from formats.remote.remote_log_metadata import RemoteSegment, TopicIdPartition
from snaprebuild.errors import LimitReachedError, ReadFailedError
from snaprebuild.storage.remote.listing import CopyObjects, ListedPartition, TierLayout, TierObject
from snaprebuild.storage.store_path import StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.remote_copy import ICEBERG_LACKS, missing_objects
from snaprebuild.tier.remote_log import RemoteLogs

__all__ = ["request_unlisted"]


@dataclass(frozen=True, slots=True)
class _LackingCopy:
    """A finished copy that lacks objects in the listing.

    Attributes:
        stems: its possible keys, without the kind of object.
    """

    place: TopicIdPartition
    layout: TierLayout
    copy: CopyObjects
    stems: tuple[str, ...]


def request_unlisted(
    root: StorePath, partitions: Sequence[ListedPartition], logs: RemoteLogs, key_prefix: str
) -> tuple[list[ListedPartition], dict[bytes, str]]:
    """Requests what finished copies lack.

    Args:
        root: that was listed.
        partitions: of the listing.
        logs: of the metadata.
        key_prefix: of the plugin, below the location.

    Returns:
        The partitions with the objects that are there all the same; and why there is no answer, by segment id. Of all other copies an
        object that is still missing is lost.
    """
    listed = {each.id: each for each in partitions}
    lacking = list(_lacking_copies(listed, partitions, logs, key_prefix))
    unanswered: dict[bytes, str] = {}
    for each, objects in zip(lacking, map_in_threads(partial(_request, root), lacking), strict=True):
        if isinstance(objects, str):
            unanswered[each.copy.segment_id] = objects
        elif objects:
            _add(listed, each, objects)
    return list(listed.values()), unanswered


def _lacking_copies(
    listed: dict[TopicIdPartition, ListedPartition], partitions: Sequence[ListedPartition], logs: RemoteLogs, key_prefix: str
) -> Iterable[_LackingCopy]:
    heads = {each.head.removesuffix(each.topic) for each in partitions if each.layout is TierLayout.AIVEN}
    places = {
        os.path.dirname(os.path.dirname(key))
        for each in partitions
        if each.layout is TierLayout.LOCAL_TIERED_STORAGE
        for key in [next(iter(each.copies[0].by_kind.values())).key]
    }
    default = TierLayout.LOCAL_TIERED_STORAGE if places and not heads else TierLayout.AIVEN
    for place, log in logs.partitions.items():
        if place in logs.deletions:
            continue
        partition = listed.get(place)
        copies = {} if partition is None else {copy.segment_id: copy for copy in partition.copies}
        layout = default if partition is None else partition.layout
        for segment in log.segments.values():
            copy = copies.get(segment.segment_id)
            missing = missing_objects(layout, copy)
            if not missing or missing == ICEBERG_LACKS or not log.is_live(segment.segment_id):
                continue
            objects = CopyObjects(segment.start_offset, segment.segment_id, {}) if copy is None else copy
            prefixes = {key_prefix} | heads if layout is TierLayout.AIVEN else places
            yield _LackingCopy(place, layout, objects, _stems(place, layout, segment, copy, prefixes))


def _stems(
    place: TopicIdPartition, layout: TierLayout, segment: RemoteSegment, copy: CopyObjects | None, prefixes: Iterable[str]
) -> tuple[str, ...]:
    """The keys of a copy without the kind of object: that of its other objects, else those below each prefix of the listing."""
    if copy is not None:
        kind, other = next(iter(copy.by_kind.items()))
        return (other.key.removesuffix(kind),)
    number = place.partition
    start = segment.start_offset
    segment_id = segment.segment_id
    if layout is TierLayout.AIVEN:
        keys = (aiven_key(each, place.topic, place.topic_id, number, start, segment_id, AivenObject.LOG) for each in prefixes)
        return tuple(sorted(key.removesuffix(AivenObject.LOG) for key in keys))
    name = str(LocalTierName(place.topic, place.topic_id, number, start, segment_id, LocalTierFile.LOG))
    return tuple(sorted(os.path.join(each, name).removesuffix(LocalTierFile.LOG) for each in prefixes))


def _request(root: StorePath, lacking: _LackingCopy) -> dict[str, TierObject] | str:
    """The objects that are there; none if one of the kinds that a copy needs is in no place. The reason if there is no answer."""
    try:
        for stem in lacking.stems:
            objects: dict[str, TierObject] = {}
            for kind in missing_objects(lacking.layout, lacking.copy):
                file = root.below(f"{stem}{kind}")
                if file.read_end(1) is None:
                    break
                with file.open(may_grow=True) as source:
                    objects[kind] = TierObject(f"{stem}{kind}", source.identity)
            else:
                return objects
    except (ReadFailedError, LimitReachedError) as error:
        return error.message
    return {}


def _add(listed: dict[TopicIdPartition, ListedPartition], lacking: _LackingCopy, objects: dict[str, TierObject]) -> None:
    copy = replace(lacking.copy, by_kind={**lacking.copy.by_kind, **objects})
    partition = listed.get(lacking.place)
    others = () if partition is None else partition.copies
    copies = sorted((copy, *(each for each in others if each.segment_id != copy.segment_id)), key=lambda each: each.base_offset)
    if partition is None:
        key: AivenKey | None = parse_aiven_key(next(iter(objects.values())).key)
        head = lacking.place.topic if key is None else key.head
        place = lacking.place
        partition = ListedPartition(lacking.layout, head, place.topic_id, place.partition, (), named=place.topic)
    listed[lacking.place] = replace(partition, copies=tuple(copies))
