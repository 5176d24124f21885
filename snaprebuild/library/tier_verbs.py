"""``audit``: the command ``tier audit`` with the same defaults, checks and results. It reads like the functions in ``library.verbs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from snaprebuild.argument_names import names_arguments
from snaprebuild.cli.runs.remote_storage import running_topic
from snaprebuild.cli.runs.tier_audit import AuditRequest, judged_audit
from snaprebuild.documents.tier import AuditedPartition, TierAudit
from snaprebuild.hooks import FilePath
from snaprebuild.library.arguments import checked_values, command_of, moment_of, reading, selection_of
from snaprebuild.library.call_engine import CallEngine
from snaprebuild.library.tier_table import AUDIT
from snaprebuild.library.verb_result import Result
from snaprebuild.library.verbs import Paths
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.run import Invocation, Run
from snaprebuild.storage.store import USUAL_S3, S3Settings
from snaprebuild.tier import AuditLevel

if TYPE_CHECKING:
    from snaprebuild.cli.view import View

__all__ = ["audit"]


@names_arguments
def audit(
    store: FilePath,
    *,
    topics: str | Sequence[str] = (),
    partitions: int | Sequence[int] = (),
    topic_partitions: str | Sequence[str] = (),
    level: str = "full",
    metadata_log: Paths = (),
    key_prefix: str = "",
    private_key: Paths = (),
    local_log_start: str | Sequence[str] = (),
    log_dir: Paths = (),
    metadata: FilePath | None = None,
    bootstrap_server: str | None = None,
    command_config: FilePath | None = None,
    ledger: FilePath | None = None,
    as_of_ms: int | None = None,
    expiration_ms: int | None = None,
    s3: S3Settings = USUAL_S3,
    jobs: int | None = None,
    impact: str | None = None,
    max_read_rate: int | None = None,
    engine: CallEngine | None = None,
) -> Result[TierAudit, AuditedPartition]:
    """Compares each producer snapshot in remote storage with a replay of the segments there: ``snaprebuild tier audit``. Reads only.

    Args:
        store: directory or ``s3://BUCKET/PREFIX`` with the objects, as Aiven's plugin or LocalTieredStorage wrote them.
        topics: shell patterns; none for all.
        partitions: numbers; none for all.
        topic_partitions: names such as ``orders-0``, besides those of the topics and numbers.
        level: ``full``, ``records``, ``reachable`` or ``structure``, as ``--level``.
        metadata_log: log directories with all partitions of ``__remote_log_metadata``; without them all complete copies count as live.
        key_prefix: ``key.prefix`` of the plugin below ``store``; empty for the last part of it, if keys begin with that, else none.
        private_key: files of RSA keys in PEM, each ``FILE`` or ``NAME=FILE``, for segments that Aiven's plugin encrypted.
        local_log_start: ``TOPIC-PARTITION=OFFSET`` each: the first offset on the leader's disk, for the level ``reachable``.
        log_dir: log directories that show the first offsets on disk, best those of the leaders, for the level ``reachable``.
        metadata: metadata log of the cluster, with which producer ids are compared; None to leave that out.
        bootstrap_server: ``HOST:PORT`` of a running cluster that has the records, in place of ``metadata_log``; several with commas.
        command_config: file with settings of librdkafka for ``bootstrap_server``.
        ledger: file with what earlier calls have proven, for audits in turns; created if it is absent. None to read everything.
        as_of_ms: moment for expiry, ms since 1970; None for now.
        expiration_ms: ``producer.id.expiration.ms``; None for Kafka's default.
        s3: how object stores are reached, and the limits of the call.
        jobs: worker processes; None for as many as processors, or as disks if those are more.
        impact: ``low``, ``normal`` or ``full``, as ``--impact``; None for low while a broker runs.
        max_read_rate: bytes a second; None for any number.
        engine: where segments are read and replayed; None for worker processes of this machine.

    Raises:
        UsageError: no copies are there, or an argument makes no sense.
        RefusedError: a limit is used up, or objects are in a cold storage class and ``s3`` has no ``max_read_bytes``.
        ReadFailedError: the store cannot be listed.
    """
    given = checked_values(locals())
    used_engine: CallEngine = given["engine"]
    request = AuditRequest(
        store=given["store"],
        level=AuditLevel(given["level"]),
        selection=selection_of(given),
        metadata_logs=given["metadata_log"],
        key_prefix=given["key_prefix"],
        private_keys=given["private_key"],
        local_log_starts=given["local_log_start"],
        log_dirs=given["log_dir"],
        metadata=given["metadata"],
        running=running_topic(given["bootstrap_server"], given["command_config"], given["metadata_log"]),
        ledger=given["ledger"],
    ).checked()
    command = command_of("tier audit", given, used_engine)
    invocation = Invocation.now(command.text)
    clock = Clock(moment_of(given), given["expiration_ms"] or DEFAULT_EXPIRATION_MS)
    run = Run(clock=clock, jobs=given["jobs"], stores=s3.for_run())
    with reading(invocation, given):
        judged = judged_audit(request, run, engine=lambda _: used_engine.reading(None))

    def new_view() -> View:
        from snaprebuild.cli.render.tier import TierAuditView

        return TierAuditView(judged.audit, clock, judged.elapsed_seconds, judged.start_concerns)

    return Result(command, invocation, AUDIT, new_view)
