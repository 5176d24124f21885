"""The verb ``inspect transactions``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from formats.limits import INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import (
    AsOf,
    Duration,
    Jobs,
    LogOptions,
    S3Options,
)
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View

__all__ = ["inspect_transactions"]


class TransactionAssumptions(msgspec.Struct, frozen=True):
    """Facts that the log does not show."""

    late_after_ms: Annotated[
        int | None,
        Assumption(
            Duration(0, INT64_MAX),
            OptionText(
                short="Time without a batch after which a transaction is late (ms, or 30m)",
                risk="with less, live transactions are reported as late",
                default="max_timeout_ms and five minutes, as brokers count",
            ),
        ),
    ] = None
    max_timeout_ms: Annotated[
        int | None,
        Assumption(
            Duration(1, INT64_MAX),
            OptionText(
                short="transaction.max.timeout.ms of the brokers (ms, or 15m)",
                risk="with less, live transactions are reported as late",
                default="that of --server-properties, else 900000 (15 minutes)",
            ),
        ),
    ] = None


@verb(Load)
def inspect_transactions(
    *,
    logs: LogOptions,
    assumed: TransactionAssumptions,
    as_of: AsOf = None,
    transaction_state: Annotated[
        list[str] | None,
        option(
            "--transaction-state",
            metavar="DIR",
            short="Partitions of __transaction_state; repeatable",
            details="They show why a transaction is open, and which ones must not be aborted.",
            default="those in the log directories",
        ),
    ] = None,
    metadata: Metadata = None,
    crc: CrcOption = Crc.CHECK,
    jobs: Jobs = None,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: lists transactions that are open, late or empty, what they hold back, and why the late ones are open.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every segment is read. Exit code 1 if a transaction is late, or a log lost its end. The command that aborts a
    transaction is printed only if the files show that its coordinator ended it, and that this replica leads. Commands are those
    of Kafka's own tool; they are never run.
    """
    from snaprebuild.cli.runs.inspect_transactions import run_inspect_transactions

    return run_inspect_transactions(
        logs=logs,
        late_after_ms=assumed.late_after_ms,
        max_timeout_ms=assumed.max_timeout_ms,
        as_of=as_of,
        transaction_state=transaction_state,
        metadata=metadata,
        crc=crc,
        jobs=jobs,
        out=out,
        s3=s3,
    )
