"""`scan`, `plan`, `rebuild`, `verify` and `audit` for a Spark session that runs already: in a notebook, or in a job of your own.

Each is the function of this name in ``snaprebuild``, with its arguments, defaults, checks and results. The executors of the session read
and replay. They need the dependencies of this package, and its code is sent to them. All paths must lead to the same files on the driver
and on all executors.

Executors use the Python that ``PYSPARK_PYTHON`` names when the session starts. A local session without this variable uses the
interpreter that runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack, get_type_hints

from snaprebuild.argument_names import check_names, parameters_of
from snaprebuild.documents.rebuild import Rebuild, RebuiltPartition
from snaprebuild.documents.scan import Scan
from snaprebuild.documents.tier import AuditedPartition, TierAudit
from snaprebuild.documents.verify import VerifiedPartition, Verify
from snaprebuild.errors import UsageError
from snaprebuild.library import tier_verbs, verbs
from snaprebuild.library.arguments import checked_argument
from snaprebuild.library.call_options import AuditOptions, PlanOptions, RebuildOptions, ScanOptions, VerifyOptions
from snaprebuild.library.verb_result import PlanResult, Result
from snaprebuild.library.verbs import FilePath, Paths
from snaprebuild.snapshots.scan.scan_parts import ScannedPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snaprebuild.snapshots.source.source import PartitionSource
    from snaprebuild.spark.effect_files import EffectCache
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.storage.store import S3Settings
    from snaprebuild.storage.thread_pool import ParallelMap

__all__ = ["audit", "plan", "rebuild", "scan", "verify"]

Progress = Callable[[str, int], None]

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def _passes(options: type) -> Callable[[Callable[_Given, _Returned]], Callable[_Given, _Returned]]:
    """Decorates a function whose ``**options`` have a type: an argument that does not exist is an error before the job starts."""

    def decorated(call: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
        known = (*parameters_of(call), *sorted(get_type_hints(options)))

        @functools.wraps(call)
        def checked(*values: _Given.args, **arguments: _Given.kwargs) -> _Returned:
            check_names(call, arguments.keys() - {"jobs"}, known)  # `_working` says why there are none
            return call(*values, **arguments)

        return checked

    return decorated


@_passes(ScanOptions)
def scan(
    session: SparkSession, source: Paths = (), *, tasks: int | None = None, **options: Unpack[ScanOptions]
) -> Result[Scan, ScannedPartition]:
    """Finds missing and suspect snapshots with the executors of ``session``: ``snaprebuild.scan`` on Spark.

    Args:
        session: of Spark.
        source: paths, one or several.
        tasks: of each step of the job; None for as many as the bytes and partitions need.
        options: keyword arguments of ``snaprebuild.scan``.

    Raises:
        UsageError, RefusedError, StorageError: as ``snaprebuild.scan``; also if the job failed.
    """
    with _working(session, tasks, options) as work:
        return verbs.scan(source, engine=work, **options)


@_passes(PlanOptions)
def plan(session: SparkSession, source: Paths = (), *, tasks: int | None = None, **options: Unpack[PlanOptions]) -> PlanResult:
    """Plans a rebuild with the executors of ``session``: ``snaprebuild.plan`` on Spark.

    Args:
        session: of Spark.
        source: paths, one or several.
        tasks: as for ``scan``.
        options: keyword arguments of ``snaprebuild.plan``.

    Raises:
        UsageError, RefusedError, StorageError: as ``snaprebuild.plan``; also if the job failed.
    """
    with _working(session, tasks, options) as work:
        return verbs.plan(source, engine=work, **options)


@_passes(RebuildOptions)
def rebuild(
    session: SparkSession,
    source: Paths = (),
    *,
    plan: PlanResult | FilePath | None = None,
    cache: FilePath | None = None,
    progress: Progress | None = None,
    tasks: int | None = None,
    **options: Unpack[RebuildOptions],
) -> Result[Rebuild, RebuiltPartition]:
    """Writes the missing snapshots INTO the log directories, or below ``out``: ``snaprebuild.rebuild`` on Spark.

    A receipt on the driver lists the written files, and ``snaprebuild undo`` takes them back.

    Args:
        session: of Spark.
        source: paths, one or several.
        plan: the result of the function ``plan``, or the file of a saved plan.
        cache: directory, or ``s3://BUCKET/PREFIX``, for the effects of rolled segments, so that the next call reads only new ones.
        progress: called with a text about the job, and the bytes that were read since the last call, maybe by a thread of its own.
        tasks: as for ``scan``.
        options: keyword arguments of ``snaprebuild.rebuild``. ``max_read_rate`` is divided among the tasks.

    Raises:
        UsageError, RefusedError, StorageError: as ``snaprebuild.rebuild``.
    """
    with _working(session, tasks, options, cache) as work:
        return verbs.rebuild(source, plan=plan, progress=progress, engine=work, **options)


@_passes(VerifyOptions)
def verify(
    session: SparkSession,
    source: Paths = (),
    *,
    cache: FilePath | None = None,
    progress: Progress | None = None,
    tasks: int | None = None,
    **options: Unpack[VerifyOptions],
) -> Result[Verify, VerifiedPartition]:
    """Compares every snapshot on disk with a replay by the executors of ``session``: ``snaprebuild.verify`` on Spark.

    Args:
        session: of Spark.
        source: paths, one or several.
        cache: as for ``rebuild``.
        progress: as for ``rebuild``.
        tasks: as for ``scan``.
        options: keyword arguments of ``snaprebuild.verify``.

    Raises:
        UsageError, RefusedError, StorageError: as ``snaprebuild.verify``; also if the job failed.
    """
    with _working(session, tasks, options, cache) as work:
        return verbs.verify(source, progress=progress, engine=work, **options)


@_passes(AuditOptions)
def audit(
    session: SparkSession, store: FilePath, *, tasks: int | None = None, **options: Unpack[AuditOptions]
) -> Result[TierAudit, AuditedPartition]:
    """Compares each snapshot in remote storage with a replay by the executors of ``session``: ``snaprebuild.audit`` on Spark.

    Args:
        session: of Spark.
        store: directory or ``s3://BUCKET/PREFIX`` with the objects.
        tasks: as for ``scan``.
        options: keyword arguments of ``snaprebuild.audit``.

    Raises:
        UsageError, RefusedError, StorageError: as ``snaprebuild.audit``; also if the job failed.
    """
    with _working(session, tasks, options) as work:
        return tier_verbs.audit(store, engine=work, **options)


@contextmanager
def _working(
    session: SparkSession, tasks: int | None, options: Mapping[str, object], cache: FilePath | None = None
) -> Iterator[_Work]:
    """The executors of a session, which get the code.

    Raises:
        UsageError: there is no session, or no such number of tasks, the path of the cache is none, or the options have worker processes.
    """
    if options.get("jobs") is not None:
        raise UsageError("jobs: the executors of the session read, and no worker processes; tasks sets how many tasks a step has")
    tasks = checked_argument("tasks", tasks)
    directory = checked_argument("cache", cache)
    if not hasattr(session, "createDataFrame"):
        found = f"found {type(session).__name__}: without Spark call the function of this name in snaprebuild"
        raise UsageError(f"session: expected the SparkSession before the paths, {found}")
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.spark.session import python_of_driver, ship_code

    ship_code(session)
    with python_of_driver(session):
        yield _Work(session, SparkEngine(session, tasks=tasks), directory, [])


@dataclass(frozen=True, slots=True)
class _Work:
    """The executors of a session as the engine of a call (``library.call_engine.CallEngine``).

    Attributes:
        cache: directory of the effects of earlier calls; None for a call that keeps none.
    """

    session: SparkSession
    engine: SparkEngine
    cache: str | None
    effects: list[EffectCache]

    @property
    def words(self) -> tuple[str, ...]:
        return ("--engine", "spark") if self.cache is None else ("--engine", "spark", "--cache", self.cache)

    def planning(self) -> ParallelMap | None:
        return self.engine.parallel_map

    def reading(self, progress: Progress | None) -> SparkEngine:
        return replace(self.engine, progress=progress, cache=next(iter(self.effects), None))

    def keep_effects(self, partitions: Iterable[PartitionSource], stores: S3Settings) -> None:
        if self.cache is None:
            return
        from snaprebuild.spark.effect_files import EffectCache

        effects = EffectCache.at(self.cache, stores)
        effects.prepare(partitions)
        self.effects.append(effects)
