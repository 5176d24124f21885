"""The work of the verb ``tier upload``."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options, as_of_ms
from snaprebuild.cli.options.metadata import check_metadata, voter_logs_of
from snaprebuild.cli.options.remote_storage import UploadOptions
from snaprebuild.cli.options.settings import CHUNK_SIZE_MAX
from snaprebuild.cli.render.tier_upload import UploadView
from snaprebuild.cli.runs import upload_inputs
from snaprebuild.cli.runs.remote_storage import ConfiguredStore, check_order, check_outside_store, configured_store
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import selection_of, topic_ids_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import start_concerns
from snaprebuild.errors import UsageError
from snaprebuild.hooks import ReplayOptions
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.run import Run, current_time_ms
from snaprebuild.snapshots.source.source import PartitionSource, live_broker_notes, open_source, yield_to_brokers
from snaprebuild.storage.store import absolute
from snaprebuild.storage.store_path import path_of
from snaprebuild.tier.remote_store import read_remote_logs
from snaprebuild.tier.upload import upload
from snaprebuild.tier.upload.fence import Uploader
from snaprebuild.tier.upload.model import UploadRequest
from snaprebuild.tier.upload.source_check import UploadSources

__all__ = ["run_tier_upload"]

CHUNK_SIZE = 4 << 20

UPLOADER_MAX = 1000
"""So that a claim is far below what is read of one."""


def run_tier_upload(
    store: str,
    path: str,
    options: UploadOptions,
    *,
    voter_ids: tuple[int, ...] | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Uploads rolled segments of the selected partitions, and announces their copies, unless ``dry_run``."""
    out.begin(new_files={"--records-file": options.records})
    configured = configured_store(store, s3, options, writes=True)
    options = configured.options(options)
    s3 = configured.s3
    _check_options(store, path, options)
    stores = stores_of(s3)
    topic_ids = topic_ids_of(options.topic_id)
    root = path_of(absolute(store), stores)
    check_outside_store(root, [out.report, options.records])
    run = run_of(s3)
    replay = ReplayOptions(as_of_ms(options.as_of), options.expiration_ms or DEFAULT_EXPIRATION_MS, s3=stores)
    source = open_source([path], selection=selection_of(options), run=run)
    check_order(store, source)
    yield_to_brokers(source)
    partitions = list(source.partitions)
    upload_inputs.check_target(root, options.key_prefix, partitions)
    logs, found = read_remote_logs(options.metadata_log or (), stores)
    sources = _sources(partitions, options, run, voter_ids)
    to_announce = upload_inputs.wanted_partitions(partitions, topic_ids)
    is_verified = bool(options.metadata_log) and logs.is_complete
    with upload_inputs.announcing(options.produce_to, options.producer_config, to_announce) as announcer:
        request = UploadRequest(
            root=root,
            key_prefix=options.key_prefix,
            uploader=_uploader(partitions, options, _chunk_bytes(options, configured), stores.run),
            host=socket.gethostname(),
            topic_ids=topic_ids,
            metadata_partitions=upload_inputs.metadata_partitions_of(options.metadata_partitions, announcer),
            dry_run=options.dry_run,
            logs=logs if announcer is None else announcer.logs,
            verified=is_verified if announcer is None else announcer.verified,
            allow_unverified=options.allow_unverified,
            plugin_encrypts=configured.plugin is not None and configured.plugin.encryption_enabled,
            allow_plain=options.allow_plain,
            announcer=announcer,
            judge=sources.judge,
            refuse=partial(sources.foreign_producers, now_ms=current_time_ms()),
            fence=sources.fence,
            replay=replay,
        )
        result = upload.tier_upload(partitions, request, upload_inputs.prepare_with(replay))
    found += [] if announcer is None else announcer.findings
    if options.records is not None and not options.dry_run:
        result.confirm()
    found += sources.findings
    findings = [*source.findings, *found, *live_broker_notes(source), *result.findings]
    findings += start_concerns(replace(source, partitions=tuple(partitions)), findings)
    return UploadView(
        result,
        request,
        findings,
        records_file=options.records,
        produced_to=options.produce_to,
        voters=[location for _, location in voter_logs_of(options.voter)],
        peers=options.peer or [],
    )


def _check_options(store: str, path: str, options: UploadOptions) -> None:
    """Makes sure that no path is empty, and that the options go with each other.

    Raises:
        UsageError: one is, or they do not.
    """
    check_directories([store, path, *(options.metadata_log or []), *(options.peer or [])])
    check_metadata(options.metadata)
    if options.produce_to is not None and (options.records is not None or options.metadata_log):
        raise UsageError(
            "with --produce-to the topic itself is read and written: neither --records-file nor --metadata-log go with it"
        )
    if options.uploader is not None and len(options.uploader) > UPLOADER_MAX:
        raise UsageError(f"--uploader: expected at most {UPLOADER_MAX} characters, found {len(options.uploader)}")


def _chunk_bytes(options: UploadOptions, configured: ConfiguredStore) -> int:
    """The size of the chunks, as an option, the configuration of the broker, or else the plugin has it."""
    if options.chunk_size is not None:
        return options.chunk_size
    if configured.plugin is None or configured.plugin.chunk_size is None:
        return CHUNK_SIZE
    if not 0 < configured.plugin.chunk_size <= CHUNK_SIZE_MAX:
        found = f"found {configured.plugin.chunk_size}"
        raise UsageError(f"chunk.size: expected 1 to {CHUNK_SIZE_MAX} bytes, {found}", path=options.server_properties)
    return configured.plugin.chunk_size


def _uploader(partitions: Sequence[PartitionSource], options: UploadOptions, chunk_bytes: int, run_name: str) -> Uploader:
    """Who uploads, as claims and manifests name it.

    Raises:
        UsageError: the directories are of several brokers, and no option names one.
    """
    node_id = upload_inputs.broker_id_of(partitions) if options.broker_id is None else options.broker_id
    return Uploader(name=options.uploader or "", run_name=run_name, chunk_bytes=chunk_bytes, node_id=node_id)


def _sources(
    partitions: Sequence[PartitionSource], options: UploadOptions, run: Run, voter_ids: tuple[int, ...] | None
) -> UploadSources:
    """The evidence that these replicas may be the source of copies."""
    return UploadSources(
        partitions,
        None if options.metadata is None else absolute(options.metadata),
        run,
        broker_epoch=options.broker_epoch,
        i_am_the_leader=options.i_am_the_leader,
        accept_own_log=options.accept_own_log,
        peers=[absolute(each) for each in options.peer or ()],
        voters=voter_logs_of(options.voter),
        voter_ids=voter_ids,
    )
