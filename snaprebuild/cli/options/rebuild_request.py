"""Options of the verbs ``plan``, ``rebuild`` and ``stage``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from snaprebuild.cli.options.common import AllowUnproven, AsOf, ExpirationMs, LogOptions, Offset
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.kafka_release import KafkaRelease
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.rebuild import AcceptTopicIdZero, Crc, CrcOption, SetAside

__all__ = [
    "Boundaries",
    "BrokerRunning",
    "Out",
    "ReplayStart",
    "RequestOptions",
    "Results",
    "Save",
    "SavedPlan",
    "StageTo",
]


class Boundaries(StrEnum):
    """The boundaries that get a snapshot."""

    MISSING = "missing"
    ALL = "all"


class ReplayStart(StrEnum):
    """Where a replay begins: the values of ``snapshots.engine.partition_replay.ReplayFrom``, which would import numpy for a help text."""

    AUTO = "auto"
    WINDOW = "window"
    LOG_START = "log-start"


Out = Annotated[
    str | None,
    option(
        "--out",
        metavar="DIR",
        short="Write to DIR/<topic-partition>/ instead; the log directories are not changed",
        details="DIR is outside of them.",
        default="next to the segments",
    ),
]
BoundariesOption = Annotated[
    Boundaries,
    option(
        "--boundaries",
        short="missing: boundaries without a snapshot",
        details="all: every boundary; in place, existing snapshots are compared and kept; with --out, `do not use` is written too.",
        default="missing",
    ),
]
ReplayFromOption = Annotated[
    ReplayStart,
    option(
        "--replay-from",
        short="auto: one expiration back, and further as evidence needs",
        details="window: never further. Risk: more unproven snapshots. log-start: the first segment on disk.",
        default="auto",
    ),
]
DropExpired = Annotated[
    bool,
    option(
        "--drop-expired/--keep-expired",
        short="Leave out entries of producers that have expired at --as-of, or keep them",
        details="Risk of leaving them out: an --as-of in the future drops live producers.",
        default="keep them, as Kafka does",
    ),
]
Save = Annotated[
    str | None,
    option(
        "--save",
        metavar="FILE",
        short="Save the plan for `rebuild --plan FILE` or `stage --plan FILE`; an older plan is replaced",
        default="none",
    ),
]
SavedPlan = Annotated[
    str | None,
    option(
        "--plan",
        metavar="FILE",
        short="Carry out exactly this saved plan, or refuse",
        default="none",
    ),
]
StageTo = Annotated[
    list[str] | None,
    option(
        "--to",
        metavar="DIR",
        short="Staging directory of `stage`, on the file system of the log directory and outside of it; repeatable, one "
        "per file system",
        default="none; `stage` needs one",
    ),
]
BrokerRunning = Annotated[
    bool,
    option(
        "--broker-running",
        short="Write while a broker of 2.8 or newer runs; rolled segments only",
        details="Segments must be below the recovery point. Brokers of 2.7 or older delete such files, and are refused if "
        "the release is known.",
        default="refuse",
    ),
]
Results = Annotated[
    str | None,
    option(
        "--results",
        metavar="FILE",
        short="Write a row for each boundary to FILE: JSON lines (.jsonl, .json) or Parquet (.parquet); in a directory, a "
        "new Parquet file",
        details="Never replaced.",
        default="none",
    ),
]


class RequestOptions(LogOptions, frozen=True):
    """The options that all three verbs take. ``RebuildRequest`` describes what they mean."""

    boundaries: BoundariesOption = Boundaries.MISSING
    replay_from: ReplayFromOption = ReplayStart.AUTO
    set_aside: SetAside = False
    crc: CrcOption = Crc.CHECK
    drop_expired: DropExpired = False
    allow_unproven: AllowUnproven = False
    accept_topic_id_zero: AcceptTopicIdZero = False
    kafka_release: KafkaRelease = None
    as_of: AsOf = None
    expiration_ms: ExpirationMs = None
    metadata: Metadata = None
    offsets: Offset = None
