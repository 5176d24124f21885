"""The verb ``inspect explain``."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import asdict

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    Paths,
    S3Options,
    ServerProperties,
    Topic,
    WholeNumber,
    clock_of,
    open_selected,
    quoted,
    selection_of,
)
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.options.settings import Text
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.inspect.broker_answer import BrokerAnswer
    from snaprebuild.inspect.explain import Answered, ExplainResult, Explanation
    from snaprebuild.inspect.producer_trace import TracedBatch

__all__ = ["inspect_explain"]

DETAILED_MAX = 3
"""Partitions that the tables explain at length; the JSON document does so with all."""

EPOCH_MAX = 2**15 - 1

_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})(\.[0-9]{1,2})?")


class ExplainAssumptions(msgspec.Struct, frozen=True):
    """What the log does not show of the broker."""

    kafka_release: Annotated[
        str | None, Assumption(Text("X.Y"), "Release of the broker that answers, 2.4 to 4.4. Default: 4.4.")
    ] = None


@verb(Load)
def inspect_explain(
    *,
    paths: Paths = None,
    producer_id: Annotated[
        int,
        typer.Option(
            "--producer-id",
            metavar="N",
            click_type=WholeNumber(0, INT64_MAX),
            help="Producer to explain. Default: none, it is required.",
        ),
    ],
    at: Annotated[
        int | None,
        typer.Option(
            "--offset",
            metavar="OFFSET",
            click_type=WholeNumber(0, INT64_MAX),
            help="Show the state before this offset, as in the name of a snapshot. Default: the log end.",
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(
            "--sequence",
            metavar="S",
            click_type=WholeNumber(0, INT32_MAX),
            help="First sequence of the batch in question. Default: the next, the last again, one after a gap, a new epoch.",
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(
            "--epoch",
            metavar="E",
            click_type=WholeNumber(0, EPOCH_MAX),
            help="Epoch of the batch in question. Default: that of the producer.",
        ),
    ] = None,
    server_properties: ServerProperties = None,
    crc: CrcOption = Crc.CHECK,
    as_of: AsOf = None,
    expiration_ms: ExpirationMs = None,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    assumed: ExplainAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows the state of one producer, which batch set each field, and what a broker would answer to its next one.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every partition that has the producer is shown. A running broker holds the last five batches in memory; after a
    start it holds one. Both answers are shown. Exit code 1 if no partition has the producer, OFFSET is not in a log, or a log lost its end.
    """
    from snaprebuild.cli.streams import bytes_progress
    from snaprebuild.cluster.scan_storage import lost_and_unread
    from snaprebuild.inspect.explain import Question
    from snaprebuild.inspect.explain import explain as ask
    from snaprebuild.snapshots.source.broker_properties import expiration_at

    out.begin()
    question = Question(producer_id, at, _version(assumed.kafka_release), sequence, epoch)
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    if expiration_ms is None and assumed.kafka_release is not None:
        expiration_ms = expiration_at(source.properties, question.version)
    run = s3.run(clock=clock_of(source, as_of, expiration_ms), jobs=jobs)
    started = time.perf_counter()
    with bytes_progress("explaining", source.size_bytes) as progress:
        result = ask(source, question, run, check_crc=crc is Crc.CHECK, progress=progress)
    seconds = time.perf_counter() - started
    lost, unread = lost_and_unread(source, result.findings)
    findings = (*result.findings, *lost, *unread)
    return Result(lambda: _document(result, seconds), findings, lambda: _print(result))


def _version(text: str | None) -> tuple[int, int]:
    from snaprebuild.inspect.broker_answer import VERSIONS

    if text is None:
        return VERSIONS[-1]
    match = _VERSION.fullmatch(text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version not in VERSIONS:
        raise UsageError(f"--assume kafka_release: expected a release of Kafka from 2.4 to 4.4; found {quoted(text)}")
    return version


def _document(result: ExplainResult, seconds: float) -> doc.Explain:
    from snaprebuild.documents import inspect as doc

    question = result.question
    return doc.Explain(
        producer_id=question.producer_id,
        requested_offset=question.at,
        broker_version=".".join(map(str, question.version)),
        as_of_ms=result.clock.as_of_ms,
        expiration_ms=result.clock.expiration_ms,
        elapsed_seconds=round(seconds, 4),
        partitions_read=result.partitions_read,
        partitions=[_partition(each) for each in result.partitions],
    )


def _partition(explanation: Explanation) -> doc.ExplainedPartition:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.storage.partition_names import names_of

    judgement = explanation.judgement
    return doc.ExplainedPartition(
        **names_of(explanation.source.directory),
        path=explanation.source.path,
        offset=explanation.offset,
        snapshot_class=None if judgement is None else judgement.snapshot_class,
        reasons=() if judgement is None else judgement.reasons,
        entry=None if explanation.entry is None else doc.Entry(**asdict(explanation.entry)),
        set_by={name: _batch(batch) for name, batch in explanation.set_by.items()},
        base_snapshot_offset=explanation.base_offset,
        in_memory=[doc.HeldBatch(**batch._asdict()) for batch in explanation.in_memory],
        expires_at_ms=explanation.expires_at_ms,
        is_expired=explanation.is_expired,
        snapshots=doc.ExplainedSnapshots(
            totals=doc.SnapshotTotals(**explanation.snapshot_counts),
            differing=[
                doc.DifferingSnapshot(
                    offset=view.offset,
                    status=view.status,
                    fields=[
                        doc.DifferingField(field=name, found=found, expected=expected) for name, found, expected in view.differences
                    ],
                )
                for view in explanation.snapshots
            ],
        ),
        answers=[_answered(each) for each in explanation.answers],
        read_bytes=explanation.bytes_read,
    )


def _batch(batch: TracedBatch) -> doc.Batch:
    from formats.partition.file_names import segment_file_name
    from snaprebuild.documents import inspect as doc
    from snaprebuild.inspect.producer_trace import BatchKind

    return doc.Batch(
        segment=segment_file_name(batch.segment),
        position_bytes=batch.position_bytes,
        base_offset=batch.base_offset,
        kind=BatchKind(batch.kind).name.lower(),
    )


def _answered(answered: Answered) -> doc.Answered:
    from snaprebuild.documents import inspect as doc

    attempt = answered.attempt
    return doc.Answered(
        batch=answered.what,
        epoch=attempt.epoch,
        sequence=attempt.base_sequence,
        records=attempt.records,
        is_transactional=attempt.is_transactional,
        transaction_version_2=attempt.bumps_epochs,
        running=_answer(answered.running),
        restarted=_answer(answered.restarted),
    )


def _answer(answer: BrokerAnswer) -> doc.Answer:
    from snaprebuild.documents import inspect as doc

    return doc.Answer(answer=answer.answer.value, reason=answer.reason, first_offset=answer.first_offset)


def _print(result: ExplainResult) -> None:
    from snaprebuild.cli.result import labels_of, print_table, print_text, time_text
    from snaprebuild.findings import pluralize

    if not result.partitions:
        return
    labels = labels_of(each.source for each in result.partitions)
    rows: list[tuple[object, ...]] = []
    for each in result.partitions:
        label = labels[each.source.path]
        klass = "-" if each.judgement is None else each.judgement.snapshot_class.value
        offset = "-" if each.offset is None else each.offset
        entry = each.entry
        if entry is None:
            rows.append((label, offset, *["-"] * 5, klass, _snapshots_text(each)))
            continue
        expires = "never: its transaction is open" if each.expires_at_ms is None else time_text(each.expires_at_ms)
        first = "-" if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset
        expires += " (expired)" if each.is_expired else ""
        values = (entry.epoch, _none(entry.last_sequence), _none(entry.last_offset), first, expires)
        rows.append((label, offset, *values, klass, _snapshots_text(each)))
    columns = ("partition", "at", "epoch", "last sequence", "last offset", "open from", "expires", "class", "snapshots")
    right = ("at", "epoch", "last sequence", "last offset", "open from")
    print_table(
        f"Producer {result.question.producer_id}", columns, rows, right=right, drop=("epoch", "last sequence", "last offset")
    )
    for each in result.partitions if len(result.partitions) <= DETAILED_MAX else ():
        _print_details(each, labels[each.source.path], ".".join(map(str, result.question.version)))
    count = f"{pluralize(result.partitions_read, 'partition')} read"
    if len(result.partitions) > DETAILED_MAX:
        count += f"; --topic and --partition with at most {DETAILED_MAX} of them show batches and answers, as --output json does"
    print_text(count)


def _print_details(explanation: Explanation, label: str, version: str) -> None:
    from formats.partition.file_names import segment_file_name, snapshot_file_name
    from snaprebuild.cli.result import print_table
    from snaprebuild.inspect.producer_trace import BatchKind

    entry = explanation.entry
    if entry is not None:
        rows: list[tuple[object, ...]] = []
        for name, value in asdict(entry).items():
            batch = explanation.set_by.get(name)
            if name == "producer_id":
                continue
            place: tuple[object, ...] = ("-", "", "", "")
            if batch is not None:
                kind = BatchKind(batch.kind).name.lower().replace("_", " ")
                place = (segment_file_name(batch.segment), batch.position_bytes, batch.base_offset, kind)
            elif explanation.base_offset is not None:
                place = (snapshot_file_name(explanation.base_offset), "", "", "")
            rows.append((name.replace("_", " "), value, *place))
        columns = ("field", "value", "set by", "byte", "base offset", "batch")
        print_table(f"What set it in {label}", columns, rows, right=("value", "byte", "base offset"), drop=("byte",))
    answers = []
    for each in explanation.answers:
        is_same = each.running == each.restarted
        moments = [("always", each.running)] if is_same else [("while it runs", each.running), ("after a start", each.restarted)]
        sequence = "-" if each.attempt.base_sequence < 0 else each.attempt.base_sequence
        answers += [(each.what, each.attempt.epoch, sequence, when, one.answer.value, one.reason) for when, one in moments]
    if answers:
        title = f"What a {version} broker answers in {label}"
        columns = ("batch", "epoch", "sequence", "when", "answer", "because")
        print_table(title, columns, answers, right=("epoch", "sequence"), drop=("epoch", "sequence"), all_rows=True)


def _none(value: int) -> object:
    return "-" if value < 0 else value


def _snapshots_text(explanation: Explanation) -> str:
    counts = [f"{count} {status.replace('_', ' ')}" for status, count in explanation.snapshot_counts.items()]
    listed = [f"{each.status.replace('_', ' ')} at {each.offset}" for each in explanation.snapshots[:3]]
    return "; ".join([", ".join(counts) or "none", *(listed if len(explanation.snapshot_counts) > 1 else ())])
