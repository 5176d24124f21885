"""The work of the verb ``tier metadata``."""

from __future__ import annotations

from dataclasses import replace

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.tier_metadata import TierMetadataOptions, custom_fields_of
from snaprebuild.cli.render.tier_metadata import MetadataOutput, TierMetadataView
from snaprebuild.cli.runs.remote_storage import check_outside_store, configured_store, key_files, running_topic, store_access
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.runs.upload_inputs import announcing
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, local_start_concerns
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.receipts.directory_receipt import TOPIC_FORM, DirectoryReceipt
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.snapshots.run import run_record
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.tier.expiration import ExpectedDeletion
from snaprebuild.tier.metadata.copy_record import RecordSettings
from snaprebuild.tier.metadata.leader_logs import LeaderLogs, read_leader_logs
from snaprebuild.tier.metadata.partition_records import check_gap_segments
from snaprebuild.tier.metadata.produce import check_cluster, check_deletions, expected_deletions, produce_records
from snaprebuild.tier.metadata.store_records import MetadataRequest, StoreRecords, store_records
from snaprebuild.tier.metadata.topic_directories import MetadataTopicPlan, plan_topic, read_cluster, write_topic
from snaprebuild.tier.remote_store import list_store
from snaprebuild.tier.upload.announce import Announcer

__all__ = ["run_tier_metadata"]


def run_tier_metadata(store: str | None, options: TierMetadataOptions, out: OutputOptions, s3: S3Options) -> View:
    """Decides which copies get records, and writes these where the options name a place, unless ``dry_run``."""
    out.begin(new_files={"--records-file": options.records, "--receipt": options.receipt}, read={"private key": key_files(options)})
    configured = configured_store(store, s3, options, writes=_has_target(options))
    options = configured.options(options)
    s3 = configured.s3
    store = configured.location
    log_dirs = options.log_dirs or []
    leader_dirs = log_dirs if options.log_dir is None else options.log_dir
    selection = selection_of(options)
    _check_options(options, selection)
    check_directories([store, *(options.metadata_log or []), *leader_dirs, *log_dirs], receipt=options.receipt)
    check_metadata(options.metadata)
    running = running_topic(options.bootstrap_server, options.command_config, options.metadata_log)
    run = run_of(s3)
    plan = plan_topic(log_dirs, options.metadata, run) if log_dirs else None
    cluster = plan if plan is not None or options.metadata is None else read_cluster(options.metadata, run)
    access = store_access(store, s3, options, PrivateKeys.of(options.private_key), running)
    if cluster is not None:
        access = replace(access, cluster_id=cluster.cluster_id)
    check_outside_store(access.root, [out.report, options.records, options.receipt])
    if options.receipt is not None and options.log_dirs is None:
        raise UsageError("--receipt: goes with --log-dirs, whose files it lists")
    leaders = read_leader_logs(leader_dirs, options.log_start or [], run)
    # Before the write, which adds partitions.
    concerns = local_start_concerns(leader_dirs, run, without=SNAPSHOTS_ALONE) if leader_dirs else []
    fields = None if configured.plugin is None else configured.plugin.custom_metadata_fields
    tier = list_store(access, stores_of(s3))
    selected = [each for each in (*tier.partitions, *tier.logs.partitions) if selection.takes_partition(each.topic, each.partition)]
    with announcing(options.produce_to, options.producer_config, selected) as announcer:
        request = MetadataRequest(
            selection=selection,
            leaders=leaders,
            settings=RecordSettings(custom_fields_of(options.custom_metadata, fields), configured.known_key_prefix),
            allow_gaps=options.allow_gaps is not None,
            writes=_has_target(options),
            metadata_partitions=_partitions(options, cluster, announcer),
            cluster=cluster,
            lost_partitions=frozenset(options.lost_metadata_partition or ()),
        )
        records = store_records(access, request, tier)
        if options.allow_gaps is not None and request.writes and not options.dry_run and not records.is_refused:
            check_gap_segments(records.partitions, options.allow_gaps)
        output = _output(options)
        if announcer is not None and not records.is_refused:
            output.deletions = _produce(records, leaders, announcer, options)
    if plan is not None and not records.is_refused:
        if options.dry_run:
            receipt = None
        else:
            receipt = DirectoryReceipt(options.receipt or default_receipt_path(None), TOPIC_FORM)
        output.directories = write_topic(plan, records.written_copies, timestamp_ms=run_record().at_ms, receipt=receipt)
        output.receipt = None if receipt is None else receipt.path
    return TierMetadataView(records, output, concerns)


def _has_target(options: TierMetadataOptions) -> bool:
    """Whether an option names a place for the records."""
    return options.records is not None or options.log_dirs is not None or options.produce_to is not None


def _output(options: TierMetadataOptions) -> MetadataOutput:
    """The destination of the records, from the options."""
    return MetadataOutput(
        records_file=options.records,
        produced_to=options.produce_to,
        dry_run=options.dry_run,
        accepted_deletions=options.deletes,
        accepted_gap_segments=options.allow_gaps,
    )


def _partitions(options: TierMetadataOptions, cluster: MetadataTopicPlan | None, announcer: Announcer | None) -> int | None:
    """How many partitions ``__remote_log_metadata`` has; None if neither the cluster nor an option shows it."""
    if announcer is not None:
        return announcer.partitions
    if cluster is not None and cluster.partitions:
        return cluster.partitions
    return options.metadata_partitions


def _produce(
    records: StoreRecords, leaders: LeaderLogs, announcer: Announcer, options: TierMetadataOptions
) -> list[ExpectedDeletion]:
    """Produces the records, unless ``dry_run``. Returns what the first pass of the leaders deletes."""
    settings = check_cluster(records.partitions, announcer)
    deletions = expected_deletions(records.partitions, leaders, settings, run_record().at_ms)
    if not options.dry_run:
        check_deletions(deletions, options.deletes)
        produce_records(records.partitions, announcer)
    return deletions


def _check_options(options: TierMetadataOptions, selection: Selection) -> None:
    """Makes sure that the options go with each other.

    Raises:
        UsageError: they do not.
    """
    if options.log_dirs is not None and selection.is_narrowed:
        raise UsageError("--log-dirs writes the records of all partitions at once: no selection goes with it")
    shown = (options.log_dirs, options.metadata, options.produce_to, options.bootstrap_server)
    if options.metadata_partitions is not None and any(each is not None for each in shown):
        raise UsageError("--metadata-partitions: the cluster shows how many there are")
    if options.produce_to is not None and (options.records is not None or options.log_dirs is not None):
        raise UsageError("--produce-to writes the records into the topic itself: neither --records-file nor --log-dirs go with it")
    if options.bootstrap_server is not None and options.log_dirs is not None:
        raise UsageError("--log-dirs is for brokers that are stopped: --bootstrap-server reads the topic of running ones")
    if options.bootstrap_server is not None and options.produce_to is not None:
        raise UsageError("--produce-to reads the topic of its brokers itself: --bootstrap-server does not go with it")
    if options.deletes and options.produce_to is None:
        raise UsageError("--deletes: goes with --produce-to")
