"""``--engine``: who reads and replays."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.operations.schedule import Engine

__all__ = ["EngineName", "EngineOption", "Master", "engine_of"]


class EngineName(StrEnum):
    """Who reads and replays."""

    PROCESS = "process"
    SPARK = "spark"
    AUTO = "auto"


EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        show_default=False,
        help="process reads with workers of this machine, spark as a Spark job (docs/spark.md); auto takes Spark where --master "
        "names a cluster and there are more than 4 GiB to read. Default: process.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master, as spark://host:7077. Default: what spark-submit says, else $SPARK_MASTER, else local[*].",
    ),
]

AUTO_BYTES_MIN = 4 << 30
"""Below this the start of a Spark job is most of it."""


@contextlib.contextmanager
def engine_of(
    name: EngineName, master: str | None, size_bytes: int, progress: Callable[[str, int], None] | None = None
) -> Iterator[Engine | None]:
    """What carries out the works of a verb; None for worker processes of this machine.

    Args:
        name: what was asked for.
        master: of Spark.
        size_bytes: to be read. On one machine its own workers do the same as Spark's, without a JVM beside them.
        progress: told what was done, and the bytes since it was told last.

    Raises:
        UsageError: Spark is not installed, or does not start.
    """
    is_cluster = not (master or os.environ.get("SPARK_MASTER") or "local").startswith("local")
    if name is EngineName.PROCESS or (name is EngineName.AUTO and not (is_cluster and size_bytes >= AUTO_BYTES_MIN)):
        yield None
        return
    try:
        from snaprebuild.spark.job import SparkEngine
        from snaprebuild.spark.session import opened_session
    except ImportError as error:
        package = (error.name or "pyspark").partition(".")[0]
        raise UsageError(f"--engine spark needs {package}: pip install 'snaprebuild[spark]'") from error
    with opened_session(master) as session:
        yield SparkEngine(session, progress)
