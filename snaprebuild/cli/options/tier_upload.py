"""Options of the verb ``tier upload``."""

from __future__ import annotations

from typing import Annotated

from formats.limits import INT32_MAX
from snaprebuild.cli.options.common import (
    AllowUnverified,
    AsOf,
    DryRun,
    ExpirationMs,
    Size,
    TopicIds,
    WholeNumber,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import AcceptOwnLog, BrokerEpoch, LeaderByWord, Metadata, Peers, VoterLogs
from snaprebuild.cli.options.produce import ProducerConfig, ProduceTo
from snaprebuild.cli.options.record_files import MetadataPartitions, Records
from snaprebuild.cli.options.remote_storage import RemoteOptions

__all__ = ["UploadOptions"]

CHUNK_SIZE = 4 << 20
CHUNK_SIZE_MAX = 1_073_741_823

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


class UploadOptions(RemoteOptions, frozen=True):
    """What is uploaded, what announces it, and the evidence that this replica may be the source."""

    allow_unverified: AllowUnverified = False
    allow_plain: AllowPlain = False
    topic_id: TopicIds = None
    chunk_size: ChunkSize = CHUNK_SIZE
    uploader: UploaderName = None
    broker_id: BrokerId = None
    records: Records = None
    produce_to: ProduceTo = None
    producer_config: ProducerConfig = None
    metadata_partitions: MetadataPartitions = None
    metadata: Metadata = None
    voter: VoterLogs = None
    peer: Peers = None
    broker_epoch: BrokerEpoch = None
    i_am_the_leader: LeaderByWord = False
    accept_own_log: AcceptOwnLog = False
    dry_run: DryRun = False
    as_of: AsOf = None
    expiration_ms: ExpirationMs = None
