"""The engine of a run: worker processes of this machine, or a Spark session that starts where it is needed first."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from snaprebuild.cli.options.reading import EngineName, EngineOptions
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.verb_command import given_options
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.thread_pool import ParallelMap

if TYPE_CHECKING:  # a run without Spark needs none of these, and a scan no engine
    from snaprebuild.spark.effect_files import EffectCache
    from snaprebuild.spark.job import SparkEngine

__all__ = ["EngineChoice", "engine_of"]

AUTO_BYTES_MIN = 4 << 30
"""Below this the start of a Spark job is most of it."""

SPARK_PACKAGES = ("pyspark", "pyarrow", "pandas")


@contextlib.contextmanager
def _is_installed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        absent = " and ".join(filter(_is_absent, SPARK_PACKAGES)) or error.name or "pyspark"
        raise UsageError(f"--engine spark needs {absent}: pip install pyspark pyarrow 'pandas<3'") from error


def _is_absent(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except ImportError:
        return True


@contextlib.contextmanager
def spark_engine(master: str | None, conf: Mapping[str, str], tasks: int | None) -> Iterator[SparkEngine]:
    """A session of Spark with these settings, and tasks of each step.

    Raises:
        UsageError: Spark is not installed, or does not start.
    """
    with _is_installed():
        import pandas  # noqa: F401  pyspark needs it for each task, and says so of each partition

        from snaprebuild.spark.job import SparkEngine
        from snaprebuild.spark.session import opened_session
    with opened_session(master, conf) as session:
        yield SparkEngine(session, tasks=tasks)


class EngineChoice:
    """The engine of a verb, which starts where it is needed first and ends with the verb.

    Attributes:
        cache: directory of the effects of earlier runs; None for a run that keeps none.
    """

    def __init__(
        self,
        name: EngineName,
        master: str | None,
        effects: str | None,
        *,
        conf: Mapping[str, str],
        tasks: int | None,
        stack: contextlib.ExitStack,
    ) -> None:
        self._name = name
        self._master = master
        self.cache = effects
        self._conf = conf
        self._tasks = tasks
        self._stack = stack
        self._spark: SparkEngine | None = None
        self._cache: EffectCache | None = None

    def planning(self) -> ParallelMap | None:
        """The map that plans partitions; None for this process, also with ``auto``: the bytes to read are not known yet."""
        return self._started().parallel_map if self._name is EngineName.SPARK else None

    def reading(self, size_bytes: int, progress: Callable[[str, int], None] | None) -> SparkEngine | None:
        """The engine that reads; None for worker processes of this machine.

        Args:
            size_bytes: to be read.
            progress: called with what was done, and the bytes since the last call.
        """
        if self._name is EngineName.AUTO:
            # On one machine its own workers do the same as Spark, without a JVM.
            is_cluster = not (self._master or os.environ.get("SPARK_MASTER") or "local").startswith("local")
            if not is_cluster or size_bytes < AUTO_BYTES_MIN:
                return None
        elif self._name is not EngineName.SPARK:
            return None
        return replace(self._started(), progress=progress, cache=self._cache)

    def keep_effects(self, partitions: Iterable[PartitionSource], stores: S3Settings) -> None:
        """Makes sure that ``--cache`` may be written to, with the errors of ``CallEngine.keep_effects`` in the library."""
        if self.cache is not None:
            with _is_installed():
                from snaprebuild.spark.effect_files import EffectCache
            self._cache = EffectCache.at(self.cache, stores)
            self._cache.prepare(partitions)

    def _started(self) -> SparkEngine:
        if self._spark is None:
            self._spark = self._stack.enter_context(spark_engine(self._master, self._conf, self._tasks))
        return self._spark


@contextlib.contextmanager
def engine_of(options: EngineOptions) -> Iterator[EngineChoice]:
    """The engine that the options choose.

    Settings of Spark count only for runs on Spark: a script that changes ``--engine`` need not change them, too. So does a cache from
    the environment or the configuration file.

    Raises:
        UsageError: the command line gives a cache to a run without Spark, or a setting is not ``KEY=VALUE``.
    """
    on_command_line = given_options(("master", "spark_conf", "cache"))
    name = options.engine
    cache = options.cache_dir
    settings = dict(_setting_of(each) for each in options.spark_conf)
    if name is EngineName.PROCESS:
        for parameter, shown in (("master", "--master"), ("spark_conf", "spark_conf")):
            if parameter in on_command_line:
                print_on_stderr(f"note: {shown} has no effect without --engine spark or auto")
        settings = {}
    if cache == "":
        raise UsageError("--cache: the path is empty")
    if cache is not None and name is not EngineName.SPARK:
        if "cache" in on_command_line:
            raise UsageError("--cache needs --engine spark: worker processes of this machine keep nothing")
        cache = None
    with contextlib.ExitStack() as stack:
        yield EngineChoice(name, options.master, cache, conf=settings, tasks=options.spark_tasks, stack=stack)


def _setting_of(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.startswith("spark.") or not equals:
        raise UsageError(f"spark_conf: expected KEY=VALUE with a key that begins with spark., found {text!r}")
    return key, value
