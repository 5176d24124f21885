"""The verb ``tier upload``."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import Annotated

import typer
from msgspec.structs import replace

from formats.limits import INT32_MAX
from snaprebuild.cli.options.common import (
    AllowUnverified,
    AsOf,
    ExpirationMs,
    S3Options,
    Size,
    WholeNumber,
    as_of_ms,
    check_paths,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import (
    AcceptOwnLog,
    BrokerEpoch,
    LeaderByWord,
    Metadata,
    Peers,
    QuorumAssumptions,
    VoterLogs,
    check_metadata,
    voter_log_of,
)
from snaprebuild.cli.options.produce import ProducerConfig, ProduceTo
from snaprebuild.cli.options.remote_storage import TierOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["tier_upload"]

CHUNK_SIZE = 4 << 20
CHUNK_SIZE_MAX = 1_073_741_823
UPLOADER_MAX = 1000
"""So that a claim is far below what is read of one."""

AllowPlain = Annotated[
    bool,
    option(
        "--allow-plain",
        short="Upload without encryption although the partition has encrypted copies",
        risk="records that should be encrypted are readable in the store",
        default="refuse",
    ),
]
ChunkSize = Annotated[
    int,
    option(
        "--chunk-size",
        metavar="BYTES",
        click_type=Size(1, CHUNK_SIZE_MAX),
        short="The plugin's chunk.size",
        default="4194304 (4 MiB)",
    ),
]
TopicIds = Annotated[
    list[str] | None,
    option(
        "--topic-id",
        metavar="TOPIC=ID",
        short="Id of a topic without partition.metadata, as before 2.8; repeatable",
        default="none",
    ),
]
TopicPartitions = Annotated[
    list[str] | None,
    option(
        "--topic-partition",
        metavar="NAME",
        short="Only this partition, TOPIC-NUMBER; repeatable",
        default="all below PATH",
    ),
]
UploaderName = Annotated[
    str | None,
    option(
        "--uploader",
        metavar="NAME",
        short="Name in claims; a run of the same name continues an earlier one",
        risk="with the name of a live run the work is done twice",
        default="host and directory of the partition",
    ),
]
BrokerId = Annotated[
    int | None,
    option(
        "--broker-id",
        metavar="N",
        click_type=WholeNumber(0, INT32_MAX),
        short="Broker id in manifests and records",
        default="that of meta.properties, else -1",
    ),
]
Records = Annotated[
    str | None,
    option(
        "--records-file",
        metavar="FILE",
        short="New file for the records of __remote_log_metadata, one JSON object per line",
        details="For clusters to which this machine has no connection.",
        default="none",
    ),
]
MetadataPartitions = Annotated[
    int | None,
    option(
        "--metadata-partitions",
        metavar="N",
        click_type=WholeNumber(1, INT32_MAX),
        short="Partitions of __remote_log_metadata",
        default="as the cluster has, else 50",
    ),
]


@verb()
def tier_upload(
    *,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Partition directory, log directory, or any above them.")],
    store: Annotated[str, typer.Argument(metavar="STORE", help="Directory or s3://BUCKET/PREFIX that objects go to.")],
    topic_partition: TopicPartitions = None,
    tier_options: TierOptions,
    allow_unverified: AllowUnverified = False,
    allow_plain: AllowPlain = False,
    topic_id: TopicIds = None,
    chunk_size: ChunkSize = CHUNK_SIZE,
    uploader: UploaderName = None,
    broker_id: BrokerId = None,
    records: Records = None,
    produce_to: ProduceTo = None,
    producer_config: ProducerConfig = None,
    metadata_partitions: MetadataPartitions = None,
    metadata: Metadata = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    peer: Peers = None,
    broker_epoch: BrokerEpoch = None,
    i_am_the_leader: LeaderByWord = False,
    accept_own_log: AcceptOwnLog = False,
    dry_run: Annotated[
        bool,
        option(
            "--dry-run",
            short="Check everything, and write nothing",
            default="no",
        ),
    ] = False,
    as_of: AsOf = None,
    expiration_ms: ExpirationMs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES rolled segments to remote storage, in the layout of Aiven's plugin; no object is replaced.

    PATH is a partition directory, a log directory, or any directory above them, below which nothing changes. STORE is a
    directory or s3://BUCKET/PREFIX.

    If you can, repair the local snapshots (`rebuild`), start the broker, and let it upload. A leader keeps in memory what it
    has uploaded. It may upload the same segments again under other ids, which costs space. This verb is for a stopped broker, a
    topic with remote.log.copy.disable=true, a restore or a migration. No broker knows of the copies before their records are in
    __remote_log_metadata: --produce-to puts them there, --records-file writes them to a file. Exit code 3 if a segment is
    refused, or if no evidence shows that a replica leads or is in sync (--metadata; with ZooKeeper --i-am-the-leader). A segment
    above the high watermark or the last stable offset waits, and nothing is wrong with it. Exit code 5 if the store or the cluster
    failed: run the same command again.
    """
    from snaprebuild.cli import upload_inputs
    from snaprebuild.cli.render.tier_upload import UploadView
    from snaprebuild.cluster.scan_storage import start_concerns
    from snaprebuild.hooks import ReplayOptions
    from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.source.source import live_broker_notes, open_source, yield_to_brokers
    from snaprebuild.storage.local.document_file import check_new_place
    from snaprebuild.storage.store import absolute
    from snaprebuild.storage.stores import path_of
    from snaprebuild.tier.listing import read_remote_logs
    from snaprebuild.tier.upload import upload
    from snaprebuild.tier.upload.fence import Uploader
    from snaprebuild.tier.upload.model import UploadRequest
    from snaprebuild.tier.upload.source_check import UploadSources

    out.begin({"--records-file": None if dry_run else records})
    check_paths([path, store, *(tier_options.metadata_log or []), *(peer or [])])
    check_metadata(metadata)
    if produce_to is not None and (records is not None or tier_options.metadata_log):
        raise UsageError(
            "with --produce-to the topic itself is read and written: neither --records-file nor --metadata-log go with it"
        )
    if records is not None and not dry_run:
        check_new_place(records)  # before the work, which would be recorded nowhere
    if uploader is not None and len(uploader) > UPLOADER_MAX:
        raise UsageError(f"--uploader: expected at most {UPLOADER_MAX} characters, found {len(uploader)}")
    stores = s3.settings()
    topic_ids = upload_inputs.topic_ids_of(topic_id)
    root = path_of(absolute(store), stores)
    run = s3.run()
    options = ReplayOptions(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS, s3=stores)
    source = open_source([path], run=run)
    yield_to_brokers(source)
    partitions = upload_inputs.selected_partitions(source.partitions, topic_partition)
    upload_inputs.check_target(root, tier_options.key_prefix, partitions)
    logs, found = read_remote_logs(tier_options.metadata_log or (), stores)
    by = Uploader(
        name=uploader or "",
        run_name=stores.run,
        chunk_bytes=chunk_size,
        node_id=upload_inputs.broker_id_of(partitions) if broker_id is None else broker_id,
    )
    other_voters = tuple(voter_log_of(each) for each in voter or ())
    sources = UploadSources(
        partitions,
        None if metadata is None else absolute(metadata),
        run,
        broker_epoch=broker_epoch,
        i_am_the_leader=i_am_the_leader,
        accept_own_log=accept_own_log,
        peers=[absolute(each) for each in peer or ()],
        voters=other_voters,
        voter_ids=assumed.voters,
    )
    with upload_inputs.announcing(produce_to, producer_config, upload_inputs.wanted_partitions(partitions, topic_ids)) as announcer:
        request = UploadRequest(
            root=root,
            key_prefix=tier_options.key_prefix,
            uploader=by,
            host=socket.gethostname(),
            topic_ids=topic_ids,
            metadata_partitions=upload_inputs.metadata_partitions_of(metadata_partitions, announcer),
            dry_run=dry_run,
            logs=logs if announcer is None else announcer.logs,
            verified=(bool(tier_options.metadata_log) and not found) if announcer is None else announcer.verified,
            allow_unverified=allow_unverified,
            allow_plain=allow_plain,
            announcer=announcer,
            judge=sources.judge,
            refuse=partial(sources.foreign_producers, now_ms=int(time.time() * 1000)),
            fence=sources.fence,
            replay=options,
        )
        result = upload.tier_upload(partitions, request, upload_inputs.prepare_with(options))
    found += [] if announcer is None else announcer.findings
    if records is not None and not dry_run:
        result.confirm()
    found += sources.findings
    findings = [*source.findings, *found, *live_broker_notes(source), *result.findings]
    findings += start_concerns(replace(source, partitions=tuple(partitions)), findings)
    return UploadView(
        result,
        request,
        findings,
        records_file=records,
        produced_to=produce_to,
        voters=[location for _, location in other_voters],
        peers=peer or [],
    )
