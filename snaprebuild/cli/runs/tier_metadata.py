"""The work of the verb ``tier metadata``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.tier_metadata import TierMetadataOptions, custom_fields_of
from snaprebuild.cli.render.tier_metadata import TierMetadataView
from snaprebuild.cli.runs.plugin_config import configured_store
from snaprebuild.cli.runs.remote_storage import key_files, private_keys, store_access
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, local_start_concerns
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.snapshots.run_record import run_record
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.tier.metadata.copy_record import RecordSettings
from snaprebuild.tier.metadata.leader_logs import read_leader_logs
from snaprebuild.tier.metadata.store_records import MetadataRequest, store_records
from snaprebuild.tier.metadata.topic_directories import WrittenDirectory, plan_topic, read_cluster, write_topic
from snaprebuild.tier.metadata.topic_receipt import TopicReceipt
from snaprebuild.tier.remote_store import list_store

__all__ = ["run_tier_metadata"]


def run_tier_metadata(store: str | None, options: TierMetadataOptions, out: OutputOptions, s3: S3Options) -> View:
    """Decides which copies get records, and writes these where the options name a place, unless ``dry_run``."""
    records_file = None if options.dry_run else options.records
    out.begin({"--records-file": records_file}, private_key=key_files(options), receipt=options.receipt)
    configured = configured_store(store, s3, options, options.server_properties, uses_keys=True)
    options = configured.options(options)
    s3 = configured.s3
    store = configured.location
    log_dirs = options.log_dirs or []
    leader_dirs = log_dirs if options.log_dir is None else options.log_dir
    selection = selection_of(options)
    _check_options(options, selection)
    check_directories([store, *(options.metadata_log or []), *leader_dirs, *log_dirs], receipt=options.receipt)
    check_metadata(options.metadata)
    if records_file is not None:
        check_new_place(records_file)
    if options.receipt is not None and not options.dry_run:
        check_new_place(options.receipt)
    run = run_of(s3)
    plan = plan_topic(log_dirs, options.metadata, run) if log_dirs else None
    cluster = plan if plan is not None or options.metadata is None else read_cluster(options.metadata, run)
    access = store_access(store, s3, options, private_keys(options))
    leaders = read_leader_logs(leader_dirs, options.log_start or [], run)
    partitions = options.metadata_partitions
    if cluster is not None and cluster.partitions:
        partitions = cluster.partitions
    fields = None if configured.plugin is None else configured.plugin.custom_metadata_fields
    request = MetadataRequest(
        selection=selection,
        leaders=leaders,
        settings=RecordSettings(custom_fields_of(options.custom_metadata, fields)),
        allow_gaps=options.allow_gaps,
        writes=options.records is not None or plan is not None,
        metadata_partitions=partitions,
        topic_ids=None if cluster is None else cluster.topic_ids,
    )
    records = store_records(access, request, list_store(access, stores_of(s3)))
    # Before the write, which adds partitions.
    concerns = local_start_concerns(leader_dirs, run, without=SNAPSHOTS_ALONE) if leader_dirs else []
    receipt: TopicReceipt | None = None
    directories: list[WrittenDirectory] = []
    if plan is not None and not records.is_refused:
        if not options.dry_run:
            receipt = TopicReceipt(options.receipt or default_receipt_path(None))
        timestamp_ms = run_record().at_ms
        directories = write_topic(plan, records.written_copies, timestamp_ms=timestamp_ms, receipt=receipt)
    return TierMetadataView(
        records,
        concerns,
        records_file=options.records,
        directories=directories,
        receipt=None if receipt is None or not receipt.is_there else receipt.path,
        dry_run=options.dry_run,
    )


def _check_options(options: TierMetadataOptions, selection: Selection) -> None:
    """Makes sure that the options go with each other.

    Raises:
        UsageError: they do not.
    """
    if options.log_dirs is not None and selection.is_narrowed:
        raise UsageError("--log-dirs writes the records of all partitions at once: no selection goes with it")
    if options.metadata_partitions is not None and (options.log_dirs is not None or options.metadata is not None):
        raise UsageError("--metadata-partitions: the metadata log of the cluster shows how many there are")
