"""``--engine`` and ``--cache``: where segments are read and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from snaprebuild.cli.options.description import option

__all__ = ["CachingEngine", "EngineName", "EngineOptions"]


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
