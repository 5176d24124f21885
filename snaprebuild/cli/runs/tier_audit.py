"""The work of the verb ``tier audit``: an audit as the command and the library request it, with what log directories next to it show."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.reading import EngineOptions
from snaprebuild.cli.options.remote_storage import TierAuditOptions
from snaprebuild.cli.render.tier import TierAuditView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.remote_storage import (
    announced,
    check_outside_store,
    configured_store,
    key_files,
    opened_ledger,
    running_topic,
)
from snaprebuild.cli.runs.run_settings import clock_at, run_of, stores_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, local_start_concerns
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.engine.partition_task import Engine
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.store import absolute
from snaprebuild.storage.store_path import path_of
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import StoreAudit
from snaprebuild.tier.audit.window import read_local_starts
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.remote_store import store_access
from snaprebuild.tier.running_topic import RunningTopic

__all__ = ["AuditRequest", "JudgedAudit", "judged_audit", "run_tier_audit"]


class AuditRequest(msgspec.Struct, frozen=True):
    """Which snapshots in remote storage are audited, and how.

    Attributes:
        store: directory or ``s3://BUCKET/PREFIX`` with the objects.
        level: how much is read.
        selection: of partitions.
        metadata_logs: log directories with partitions of ``__remote_log_metadata``.
        key_prefix: of the plugin, below the store.
        private_keys: ``NAME=FILE`` or ``FILE`` each.
        local_log_starts: ``TOPIC-PARTITION=OFFSET`` each, for the level ``REACHABLE``.
        log_dirs: log directories, best those of the leaders, for the level ``REACHABLE``.
        metadata: metadata log of the cluster, with which producer ids are compared; None to leave that out.
        running: records of a running cluster, in place of ``metadata_logs``.
        ledger: path of the ledger of earlier runs, which is created if it is absent; None without one.
    """

    store: str
    level: AuditLevel = AuditLevel.FULL
    selection: Selection = Selection()
    metadata_logs: tuple[str, ...] = ()
    key_prefix: str = ""
    private_keys: tuple[str, ...] = ()
    local_log_starts: tuple[str, ...] = ()
    log_dirs: tuple[str, ...] = ()
    metadata: str | None = None
    running: RunningTopic | None = None
    ledger: str | None = None

    def checked(self) -> AuditRequest:
        """The request, after its paths and options were checked.

        Raises:
            UsageError: a path names no directory, or options do not go together.
        """
        check_directories([self.store, *self.metadata_logs, *self.log_dirs])
        check_metadata(self.metadata)
        if (self.local_log_starts or self.log_dirs) and self.level is not AuditLevel.REACHABLE:
            raise UsageError("--local-log-start and --log-dir go with --level reachable")
        if self.ledger is not None and self.level is not AuditLevel.FULL:
            raise UsageError("--ledger goes with --level full")
        return self


class JudgedAudit(msgspec.Struct, frozen=True):
    """An audit of a store and what the log directories of its leaders show.

    Attributes:
        audit: of the store.
        elapsed_seconds: of the audit.
        start_concerns: about the next start of the brokers whose log directories were named.
    """

    audit: StoreAudit
    elapsed_seconds: float
    start_concerns: tuple[Finding, ...]


def judged_audit(
    request: AuditRequest,
    run: Run,
    *,
    engine: Callable[[int], Engine | None],
    announce: Callable[[AuditCost], None] | None = None,
) -> JudgedAudit:
    """Carries out a request.

    Args:
        request: that was checked.
        run: entries that a load at the moment of its clock drops are not compared.
        engine: makes, from the bytes of the segments, what reads and replays in place of worker processes of this machine, or None.
        announce: called with what is going to be read, before anything but manifests is.

    Raises:
        UsageError: nothing of a known layout is there that the request selects, or a private key or the ledger is none.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run ended the listing, or objects are in a cold storage class and no limit was set.
    """
    keys = PrivateKeys.of(request.private_keys)
    access = store_access(
        request.store,
        run.stores,
        metadata_logs=request.metadata_logs,
        private_keys=keys,
        key_prefix=request.key_prefix,
        running=request.running,
    )
    cluster = None if request.metadata is None else MetadataLogs(absolute(request.metadata), run).named()
    starts = None
    if request.local_log_starts or request.log_dirs:
        starts = read_local_starts(request.local_log_starts, request.log_dirs, run)
    began = time.perf_counter()
    with opened_ledger(request.ledger, access) as ledger:
        audit = tier_audit(
            access,
            run,
            level=request.level,
            selection=request.selection,
            engine=engine,
            announce=announce,
            local_starts=starts,
            cluster=cluster,
            ledger=ledger,
        )
    seconds = time.perf_counter() - began
    concerns: list[Finding] = []
    if request.log_dirs:
        concerns = local_start_concerns(request.log_dirs, run, without=SNAPSHOTS_ALONE)
    return JudgedAudit(audit, seconds, tuple(concerns))


def run_tier_audit(store: str | None, options: TierAuditOptions, engine: EngineOptions, out: MeasuredOutput, s3: S3Options) -> View:
    """Compares the snapshots in remote storage with a replay."""
    out.begin(read={"private key": key_files(options), "ledger": options.ledger})
    configured = configured_store(store, s3, options, writes=False)
    options = configured.options(options)
    s3 = configured.s3
    request = AuditRequest(
        store=configured.location,
        level=options.level,
        selection=selection_of(options),
        metadata_logs=tuple(options.metadata_log or ()),
        key_prefix=options.key_prefix,
        private_keys=tuple(options.private_key),
        local_log_starts=tuple(options.local_log_start or ()),
        log_dirs=tuple(options.log_dir or ()),
        metadata=options.metadata,
        running=running_topic(options.bootstrap_server, options.command_config, options.metadata_log),
        ledger=options.ledger,
    ).checked()
    check_outside_store(path_of(absolute(request.store), stores_of(s3)), [out.report, out.metrics_file, options.ledger])
    run = run_of(s3, clock=clock_at(options.as_of, options.expiration_ms), jobs=options.jobs)
    with engine_of(engine) as chosen:
        judged = judged_audit(request, run, engine=lambda size_bytes: chosen.reading(size_bytes, None), announce=announced)
    return TierAuditView(judged.audit, run.clock, judged.elapsed_seconds, judged.start_concerns)
