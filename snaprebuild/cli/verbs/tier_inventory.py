"""The verb ``tier inventory``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import OutputFormat, OutputOption, Report, S3Options, Verbose, takes_s3

if TYPE_CHECKING:
    from snaprebuild.storage.store import S3Settings, Store
    from snaprebuild.tier.inventory import PartitionInventory, TierInventory

__all__ = ["KeyPrefix", "MetadataLog", "TierLocation", "opened_tier", "tier_inventory"]


TierLocation = Annotated[str, typer.Argument(metavar="STORE", help="Directory or s3://BUCKET/PREFIX with the objects.")]
KeyPrefix = Annotated[
    str,
    typer.Option(
        "--key-prefix",
        metavar="TEXT",
        show_default=False,
        help="Beginning of the keys below STORE, as key.prefix of the plugin has it. It goes before the topic as it is, without a slash "
        "of its own. Only objects whose keys begin with it are read. Default: the last part of STORE, where keys begin with it and it "
        "is no directory; else none.",
    ),
]
MetadataLog = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata-log",
        metavar="DIR",
        help="Log directory of a broker with partitions of __remote_log_metadata, or one above several; repeatable. All "
        "partitions of it are needed. Default: none, and which copies brokers know is not verified. "
        "Risk: if the topic has not 50 partitions, a missing one may go unnoticed, and good copies are called orphans.",
    ),
]


@takes_s3
def tier_inventory(
    s3: S3Options,
    store: TierLocation,
    metadata_log: MetadataLog = None,
    key_prefix: KeyPrefix = "",
    output: OutputOption = OutputFormat.TABLE,
    report: Report = None,
    verbose: Verbose = 0,
) -> None:
    """Reads only: the copies of segments in remote storage, and what the metadata log says of each.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. Without
    --metadata-log the manifests are read, one request for each copy. Exit code 1 where something is left over or missing, 4
    where objects of finished copies are gone.
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.cli.result import begin, leave, verdict_document
    from snaprebuild.tier.inventory import tier_inventory as look

    begin(verbose, {"--report": report})
    check_paths([store, *(metadata_log or [])])
    place, root, settings, prefix = opened_tier(store, s3, key_prefix)
    inventory = look(place, root, metadata_log or (), settings, prefix)
    leave(
        lambda: verdict_document("tier-inventory", 1, _body(inventory), inventory.findings),
        inventory.findings,
        as_json=output is OutputFormat.JSON,
        show=lambda: _print(inventory),
        report=report,
        everything=verbose > 0,
        notes=True,
    )


def opened_tier(location: str, s3: S3Options, key_prefix: str) -> tuple[Store, str, S3Settings, str]:
    """The store of a location, the location itself, absolute, how object stores are reached, and ``key.prefix`` below the location.

    Raises:
        UsageError: there is no such directory.
    """
    from snaprebuild.errors import UsageError
    from snaprebuild.storage.log_dir import directory_fault, store_of
    from snaprebuild.storage.remote.listing import split_key_prefix
    from snaprebuild.storage.store import absolute

    settings, root = s3.settings(), absolute(location)
    store = store_of(root, settings)
    if not key_prefix and not location.endswith("/"):
        root, key_prefix = split_key_prefix(store, root)
    if store.is_local and (fault := directory_fault(root)) is not None:
        raise UsageError(fault, path=location)
    return store, root, settings, key_prefix


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
    from snaprebuild.findings import counted
    from snaprebuild.tier.inventory import SERVING

    rows = []
    ids = id_labels((each.topic, each.topic_id) for each in inventory.partitions)
    for each in inventory.partitions:
        label = each.name + ids.get((each.topic, each.topic_id), "")
        ends = [copy.end_offset for copy in each.copies if copy.state in SERVING and copy.end_offset is not None]
        first = next((copy.start_offset for copy in each.copies if copy.state in SERVING), "-")
        states = ", ".join(f"{count} {state.value}" for state, count in sorted(each.counts.items()))
        gaps = counted(len(each.gaps), "gap") if each.gaps else "-"
        rows.append((label, each.layout or "-", first, max(ends, default="-"), size_text(each.stored_bytes), gaps, states))
    columns = ("partition", "layout", "from offset", "to offset", "stored", "gaps", "copies")
    print_table("Remote storage", columns, rows, right=("from offset", "to offset", "stored"))
    stored = sum(each.stored_bytes for each in inventory.partitions)
    copies = sum(len(each.copies) for each in inventory.partitions)
    told = (
        f"{counted(len(inventory.partitions), 'partition')}, {counted(copies, 'copy', 'copies')} of segments, {size_text(stored)}"
    )
    print_text(told if inventory.has_metadata else f"{told}; which of them are live is unverified")
