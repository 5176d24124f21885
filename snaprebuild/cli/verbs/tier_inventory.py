"""The verb ``tier inventory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import KeyPrefix, MetadataLog, TierLocation, opened_tier
from snaprebuild.cli.verb import OutputOptions, Result, verb

if TYPE_CHECKING:
    from snaprebuild.tier.inventory import PartitionInventory, TierInventory

__all__ = ["tier_inventory"]


@verb()
def tier_inventory(
    *,
    store: TierLocation,
    metadata_log: MetadataLog = None,
    key_prefix: KeyPrefix = "",
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: the copies of segments in remote storage, and what the metadata log says of each.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. Without
    --metadata-log the manifests are read, one request for each copy. Exit code 1 where something is left over or missing, 4
    where objects of finished copies are gone.
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.tier.inventory import tier_inventory as look

    out.begin()
    check_paths([store, *(metadata_log or [])])
    place, root, settings, prefix = opened_tier(store, s3, key_prefix)
    inventory = look(place, root, metadata_log or (), settings, prefix)
    return Result.untyped(
        ("tier-inventory", 1), lambda: _body(inventory), inventory.findings, lambda: _print(inventory), notes=True
    )


def _body(inventory: TierInventory) -> dict[str, object]:
    return {
        "store": inventory.root,
        "verified": inventory.has_metadata,
        "unknown_objects": inventory.unknown.count,
        "partitions": [_partition(each) for each in inventory.partitions],
    }


def _partition(partition: PartitionInventory) -> dict[str, object]:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.tier.inventory import CopyState

    counts = partition.counts
    return {
        "topic": partition.topic,
        "topic_id": uuid_to_text(partition.topic_id),
        "partition": partition.partition,
        "layout": partition.layout,
        "stored_bytes": partition.stored_bytes,
        "counts": {state.value: counts[state] for state in CopyState},
        "gaps": [list(gap) for gap in partition.gaps],
        "overlaps": [list(overlap) for overlap in partition.overlaps],
        "copies": [
            {
                "segment_id": uuid_to_text(copy.segment_id),
                "state": copy.state.value,
                "start_offset": copy.start_offset,
                "end_offset": copy.end_offset,
                "leader_epochs": [list(entry) for entry in copy.leader_epochs],
                "segment_bytes": copy.segment_bytes,
                "stored_bytes": copy.stored_bytes,
                "event_timestamp_ms": copy.event_timestamp_ms,
                "missing": list(copy.missing),
                "fault": copy.fault,
            }
            for copy in partition.copies
        ],
    }


def _print(inventory: TierInventory) -> None:
    from snaprebuild.cli.result import id_labels, print_table, print_text, size_text
    from snaprebuild.findings import pluralize
    from snaprebuild.tier.inventory import SERVING

    rows = []
    ids = id_labels((each.topic, each.topic_id) for each in inventory.partitions)
    for each in inventory.partitions:
        label = each.name + ids.get((each.topic, each.topic_id), "")
        ends = [copy.end_offset for copy in each.copies if copy.state in SERVING and copy.end_offset is not None]
        first = next((copy.start_offset for copy in each.copies if copy.state in SERVING), "-")
        states = ", ".join(f"{count} {state.value}" for state, count in sorted(each.counts.items()))
        gaps = pluralize(len(each.gaps), "gap") if each.gaps else "-"
        rows.append((label, each.layout or "-", first, max(ends, default="-"), size_text(each.stored_bytes), gaps, states))
    columns = ("partition", "layout", "from offset", "to offset", "stored", "gaps", "copies")
    print_table("Remote storage", columns, rows, right=("from offset", "to offset", "stored"))
    stored = sum(each.stored_bytes for each in inventory.partitions)
    copies = sum(len(each.copies) for each in inventory.partitions)
    told = f"{pluralize(len(inventory.partitions), 'partition')}, {pluralize(copies, 'copy', 'copies')} of segments, {size_text(stored)}"
    print_text(told if inventory.has_metadata else f"{told}; which of them are live is unverified")
