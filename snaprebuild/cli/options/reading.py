"""Options of verbs that read segments: where they are read and replayed, how fast, and what stays in the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from snaprebuild.cli.options.description import option

if TYPE_CHECKING:
    from snaprebuild.storage.io_limits.policy import RunLimits

__all__ = ["CachingEngine", "EngineName", "EngineOptions", "Impact", "Load", "LoadAlone"]


class EngineName(StrEnum):
    """Where segments are read and replayed."""

    PROCESS = "process"
    SPARK = "spark"
    AUTO = "auto"


EngineOption = Annotated[
    EngineName,
    option(
        "--engine",
        short="process: workers of this machine",
        details="spark: a Spark job. auto: Spark if --master names a cluster and more than 4 GiB must be read.",
        default="process",
    ),
]
Master = Annotated[
    str | None,
    option(
        "--master",
        metavar="URL",
        short="Spark master, such as spark://host:7077",
        default="that of spark-submit, else $SPARK_MASTER, else local[*]",
    ),
]

CacheOption = Annotated[
    str | None,
    option(
        "--cache",
        metavar="DIR",
        short="Keep the effects of rolled segments in DIR or s3://BUCKET/PREFIX, and read only new segments",
        details="For repeated Spark runs.",
        risk="later damage of old segments is not seen",
        default="none, every segment is read",
    ),
]


class EngineOptions(msgspec.Struct, frozen=True):
    """``--engine``, ``--master`` and the settings of Spark."""

    engine: EngineOption = EngineName.PROCESS
    master: Master = None
    spark_conf: Sequence[str] = ()
    spark_tasks: int | None = None

    @property
    def cache_dir(self) -> str | None:
        """Where effects are kept between runs; None if the verb keeps none."""
        return None


class CachingEngine(EngineOptions, frozen=True):
    """``--engine`` and ``--cache``, for a verb that can keep the effects of segments."""

    cache: CacheOption = None

    @property
    def cache_dir(self) -> str | None:
        """Directory of ``--cache``; None without it."""
        return self.cache


class Impact(StrEnum):
    """Share of the machine."""

    LOW = "low"
    NORMAL = "normal"
    FULL = "full"


class LoadAlone(msgspec.Struct, frozen=True):
    """How much a verb without workers may read at once, and who comes first."""

    impact: Annotated[
        Impact | None,
        option(
            "--impact",
            short="Share of the machine",
            details="low: 64 MiB/s of each disk at idle priority. normal: as fast as any program. full: also fills the page cache.",
            risk="with normal or full a running broker may wait for its disks",
            default="low while a broker runs",
        ),
    ] = None
    max_read_rate: int | None = None
    priority: str = "auto"
    max_memory: int | None = None
    fill_page_cache: bool = False

    @property
    def readers_per_disk(self) -> int | None:
        """Workers that read from one disk at once; None where that is not asked for."""
        return None

    def limits(self) -> AbstractContextManager[RunLimits]:
        """The verb reads so inside, before it is known whether a broker is at work."""
        from snaprebuild.storage.io_limits.policy import IoLimits, limited_io

        limits = IoLimits(
            leaves_page_cache=not (self.fill_page_cache or self.impact is Impact.FULL),
            bytes_per_second=self.max_read_rate,
            at_idle_priority=self.priority == "idle",
            readers_per_disk=self.readers_per_disk,
            max_memory_bytes=self.max_memory,
            adapts_to_broker=self.impact in (None, Impact.LOW),
            priority_is_automatic=self.priority == "auto" and self.impact in (None, Impact.LOW),
            is_low=self.impact is Impact.LOW,
        )
        return limited_io(limits)


class Load(LoadAlone, frozen=True):
    """The limits of load for a verb with workers."""

    jobs_per_disk: int | None = None

    @property
    def readers_per_disk(self) -> int | None:
        """The value of the setting ``jobs_per_disk``; None for the default."""
        return self.jobs_per_disk
