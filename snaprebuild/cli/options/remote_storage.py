"""Options of the verbs on remote storage and followers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from formats.limits import INT32_MAX
from snaprebuild.cli.options.common import (
    AllowUnverified,
    AsOf,
    DryRun,
    ExpirationMs,
    Jobs,
    ReceiptFile,
    SelectionOptions,
    ServerProperties,
    TopicIds,
    WholeNumber,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import AcceptOwnLog, BrokerEpoch, LeaderByWord, Metadata, Peers, VoterLogs
from snaprebuild.followers import Profile
from snaprebuild.tier import AuditLevel

__all__ = [
    "BootstrapServer",
    "CommandConfig",
    "ConfiguredOptions",
    "LeaderLogDirs",
    "LogPath",
    "MetadataPartitions",
    "ProduceTo",
    "ProducerConfig",
    "ProfileOption",
    "ProofOption",
    "Records",
    "RemoteLevel",
    "RemoteOptions",
    "RemoteReplayOptions",
    "StoreAndPath",
    "StoreOrConfigured",
    "TierAuditOptions",
    "TierInventoryOptions",
    "TierLocation",
    "TierRepairOptions",
    "UploadOptions",
]


LogPath = Annotated[str, typer.Argument(metavar="PATH", hidden=True)]

StoreAndPath = Annotated[list[str], typer.Argument(metavar="[STORE] PATH", hidden=True)]
"""STORE comes first, as with each verb that needs one."""


class RemoteLevel(StrEnum):
    """How much of remote storage is read."""

    FULL = "full"
    SNAPSHOT = "snapshot"


ProofOption = Annotated[
    RemoteLevel,
    option(
        "--proof",
        short="full: replay the copies below, which proves the snapshot",
        details="snapshot: take the snapshot unproven.",
        default="full",
    ),
]


ProfileOption = Annotated[
    Profile,
    option(
        "--profile",
        short="Rules that decide: those of brokers since 4.2 (kafka-4.3), or of the proposal (kip-1023)",
        details="They differ if remote storage has nothing usable, or ends above the log.",
        default="kafka-4.3",
    ),
]


MetadataLog = Annotated[
    list[str] | None,
    option(
        "--metadata-log",
        metavar="DIR",
        short="Log directory with partitions of __remote_log_metadata; repeatable",
        details="All its partitions are needed.",
        risk="if the topic has not 50 partitions, a missing one may stay unnoticed, and good copies look as if they had no record",
        default="none, copies are not verified",
    ),
]


LeaderLogDirs = Annotated[
    list[str] | None,
    option(
        "--log-dir",
        metavar="DIR",
        short="Log directory with the first offset on disk, best the leader's; repeatable",
        details="`tier audit` takes it with --level reachable; `tier metadata` reads log starts and leader epochs, too.",
        default="none",
    ),
]


class RemoteOptions(SelectionOptions, frozen=True):
    """Which partitions of a store are read, and what is known of the store besides its place."""

    metadata_log: MetadataLog = None
    key_prefix: str = ""
    private_key: Sequence[str] = ()


BrokerCredentials = Annotated[
    bool,
    option(
        "--broker-credentials",
        short="Use the access key in --server-properties for its bucket, and its private keys also where a verb writes",
        details="No output has them. The receipt has neither: `undo` needs credentials of its own.",
        default="the usual chain of the AWS SDK",
    ),
]


class ConfiguredOptions(RemoteOptions, frozen=True):
    """A store whose settings the configuration of a broker has."""

    server_properties: ServerProperties = None
    broker_credentials: BrokerCredentials = False


class RemoteReplayOptions(ConfiguredOptions, frozen=True):
    """How the copies of a store, and the log next to them, are replayed."""

    as_of: AsOf = None
    expiration_ms: ExpirationMs = None
    jobs: Jobs = None


StoreOrConfigured = Annotated[
    str | None,
    typer.Argument(metavar="STORE", help="Directory or s3://BUCKET/PREFIX with the objects. Default: that of --server-properties."),
]
TierLocation = Annotated[str, typer.Argument(metavar="STORE", help="Directory or s3://BUCKET/PREFIX with the objects.")]


BootstrapServer = Annotated[
    str | None,
    option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        short="Read __remote_log_metadata from this running cluster, instead of --metadata-log",
        details="Joins no group, commits and creates nothing. Needs snaprebuild[kafka].",
        default="none",
    ),
]

CLIENT_NAMES = "Names are those of librdkafka. Of Java's client sasl.jaas.config (PLAIN, SCRAM) and PEM stores are taken, too."

CommandConfig = Annotated[
    str | None,
    option(
        "--command-config",
        metavar="FILE",
        short="Client settings for --bootstrap-server, one NAME=VALUE per line, such as security.protocol or sasl.password",
        details=CLIENT_NAMES,
        default="none, an unencrypted connection",
    ),
]


Ledger = Annotated[
    str | None,
    option(
        "--ledger",
        metavar="FILE",
        short="Audit in turns: keep in FILE what was read and proven, and go on there",
        details="The file is created if it is absent, and changed by each run. `tier audit` reads what was never read, then what was read "
        "first, within max_requests and max_read_bytes (--level full). `tier repair` reads only what it lacks, and what has changed.",
        default="none, everything is read",
    ),
]


class TierAuditOptions(RemoteReplayOptions, frozen=True):
    """How much of a store is audited, and what else shows which snapshots matter."""

    level: Annotated[
        AuditLevel,
        option(
            "--level",
            short="full: replay every segment",
            details="reachable: replay one --expiration-ms, for the snapshots from which a follower may still start. structure: "
            "parse manifests and snapshots only. records: full, and decode each record.",
            default="full",
        ),
    ] = AuditLevel.FULL
    local_log_start: Annotated[
        list[str] | None,
        option(
            "--local-log-start",
            metavar="TOPIC-PARTITION=OFFSET",
            short="First offset on the leader's disk, for each partition; repeatable",
            details="For --level reachable.",
            default="none, only the last copy counts as reachable",
        ),
    ] = None
    log_dir: LeaderLogDirs = None
    metadata: Metadata = None
    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None
    ledger: Ledger = None


class TierInventoryOptions(ConfiguredOptions, frozen=True):
    """The cluster of the store, the moment from which ages are counted, and the file of keys."""

    as_of: AsOf = None
    metadata: Metadata = None
    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None
    keys: Annotated[
        str | None,
        option(
            "--keys",
            metavar="FILE",
            short="Write a row for each key to FILE: JSON lines with state, reason, size, age, ETag and version",
            details="Never replaced.",
            default="none",
        ),
    ] = None


EarlierAuditFile = Annotated[
    str | None,
    option(
        "--audit",
        metavar="FILE",
        short="JSON result of tier audit STORE: only the segments of wrong copies are read",
        details="Where snapshots lack expired producers, those below them are read, too. A copy that changed since is refused.",
        default="none, everything is audited",
    ),
]


class TierRepairOptions(RemoteReplayOptions, frozen=True):
    """Which copies of a store are repaired, and where the receipt goes."""

    allow_unverified: AllowUnverified = False
    dry_run: DryRun = False
    receipt: ReceiptFile = None
    audit: EarlierAuditFile = None
    ledger: Ledger = None
    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None


ProduceTo = Annotated[
    str | None,
    option(
        "--produce-to",
        metavar="HOST:PORT[,...]",
        short="Bootstrap servers; produce the records of each copy to their __remote_log_metadata",
        details="Needs snaprebuild[kafka].",
        default="none",
    ),
]
ProducerConfig = Annotated[
    str | None,
    option(
        "--producer-config",
        metavar="FILE",
        short="Client settings for --produce-to, one NAME=VALUE per line, such as security.protocol or sasl.password",
        details=CLIENT_NAMES,
        default="none, an unencrypted connection",
    ),
]

AllowPlain = Annotated[
    bool,
    option(
        "--allow-plain",
        short="Upload without encryption although the partition has encrypted copies, or --server-properties has encryption.enabled",
        risk="records that should be encrypted are readable in the store",
        default="refuse",
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


class UploadOptions(ConfiguredOptions, frozen=True):
    """The uploaded segments, their announcement, and the evidence that this replica may be the source."""

    allow_unverified: AllowUnverified = False
    allow_plain: AllowPlain = False
    topic_id: TopicIds = None
    chunk_size: int | None = None
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
