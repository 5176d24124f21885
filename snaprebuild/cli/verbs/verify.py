"""The verb ``verify``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Offset,
    Partition,
    Paths,
    S3Options,
    ServerProperties,
    Topic,
    check_paths,
    clock_of,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.engine import CachingEngine, engine_of
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.kafka_release import KafkaRelease, release_of
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.verb import MeasuredOutput, Result, verb
from snaprebuild.errors import UsageError
from snaprebuild.findings import unread_paths

if TYPE_CHECKING:
    from snaprebuild.broker.releases import Release
    from snaprebuild.broker.status import Status
    from snaprebuild.documents.verify import Partition as VerifiedPartition
    from snaprebuild.documents.verify import Verify
    from snaprebuild.findings import Finding
    from snaprebuild.snapshots.scan.result import PartitionScan
    from snaprebuild.snapshots.source.source import Source
    from snaprebuild.snapshots.verify import PartitionVerdict, VerifyResult

__all__ = ["verify", "verify_document"]

DIFFERENCES_SHOWN_MAX = 10


@verb(Load)
def verify(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    crc: CrcOption = Crc.CHECK,
    as_of: AsOf = None,
    expiration_ms: ExpirationMs = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offset = None,
    kafka_release: KafkaRelease = None,
    jobs: Jobs = None,
    engine: CachingEngine,
    receipt: Annotated[
        str | None,
        typer.Option(
            "--receipt",
            metavar="FILE",
            help="Instead show the present state of the files in this receipt: kept, removed or replaced, and why. Takes no "
            "PATH and replays nothing. Default: none.",
        ),
    ] = None,
    out: MeasuredOutput,
    s3: S3Options,
) -> Result:
    """Reads only: replays each partition and compares every snapshot on disk with the result.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every segment is read, from the first one on disk. Exit code 1 if a snapshot is proven wrong, or is suspect to
    `scan` and not proven right. A missing one is counted, and is no finding. It also reports what the broker does at its
    next start, as `scan` does.
    """
    from snaprebuild.cli.streams import bytes_progress
    from snaprebuild.snapshots.verify import verify as judge

    check_paths(paths, receipt=receipt)
    out.begin(receipt=receipt)
    if receipt is not None:
        if paths or server_properties is not None or topic or partition or offsets is not None:
            raise UsageError("--receipt names the files by itself: no PATH, --server-properties or selection goes with it")
        if out.metrics is not None:
            raise UsageError("--receipt compares no snapshot with the log: --metrics does not go with it")
        return _receipt_result(receipt, details=out.everything)
    release = release_of(kafka_release)
    selection = selection_of(topic, partition, offsets)
    source = open_selected(paths, server_properties, selection, s3)
    clock = clock_of(source, as_of, expiration_ms)
    started = time.perf_counter()
    size_bytes = source.size_bytes
    with engine_of(engine) as chosen, bytes_progress("verifying", size_bytes) as progress:
        chosen.keep_effects(source.partitions, s3.settings())
        run = s3.run(clock=clock, jobs=jobs, engine=chosen.reading(size_bytes, progress))
        result = judge(source, run, selection=selection, check_crc=crc is Crc.CHECK, progress=progress)
    seconds = time.perf_counter() - started
    status, of_start, scanned = _next_start(source, release, result)
    suspects = _suspects(result, scanned)
    unread = set(unread_paths(result.findings))
    # What the start makes of the same fault is one finding for all partitions, and comes with the way out.
    fates = {(fate.code, fate.path) for group in status.groups for fate in group.fates}
    own = [each for each in result.findings if each.is_unread or (each.code, each.path) not in fates]
    # Of two findings about one file the worse one decides about the exit code: a file that cannot be read may end the start.
    reported = {(each.code, each.path): each.severity for each in sorted(own, key=lambda each: each.severity)}
    others = [
        each
        for each in of_start
        if each.severity > reported.get((each.code, each.path), -1) and not (each.is_unread and each.path in unread)
    ]
    findings = (*own, *suspects, *others)
    status = _status(result, status, suspect=len({each.path for each in suspects}), unread=len(unread_paths(findings)))
    return Result(
        lambda: verify_document(result, seconds, chosen.cache, status),
        findings,
        lambda: _print(result, details=out.everything),
        answer=lambda: _answer(result, status, findings),
        includes_unread=True,
    )


def _status(result: VerifyResult, status: Status, *, suspect: int, unread: int) -> Status:
    """The status of the next start, with what the replay proves in place of what names and sizes show."""
    from msgspec.structs import replace

    from snaprebuild.snapshots.source.topic_ids import topics_under_id_zero

    comparisons = [each.comparison for verdict in result.partitions for each in verdict.snapshots]
    return replace(
        status,
        wrong=sum(comparison.proven_wrong for comparison in comparisons),
        suspect=suspect,
        missing=result.counts.missing,
        unread=unread,
        topics_without_id=tuple(sorted(topics_under_id_zero(each.source for each in result.partitions))),
    )


def _suspects(result: VerifyResult, scanned: Sequence[PartitionScan]) -> list[Finding]:
    """What `scan` has against snapshots that the replay proves neither right nor wrong."""
    from snaprebuild.replay.difference import ComparisonStatus

    unproven = {
        verdict.source.directory.file_path(each.name)
        for verdict in result.partitions
        for each in verdict.snapshots
        if each.comparison.status is ComparisonStatus.UNVERIFIABLE and not each.comparison.proven_wrong
    }
    return [finding for partition in scanned for finding in partition.suspects if finding.path in unproven]


def _next_start(
    source: Source, release: Release | None, result: VerifyResult
) -> tuple[Status, list[Finding], tuple[PartitionScan, ...]]:
    """What `scan` reports of the next start and of producer ids, what of it could not be read, and its partitions.

    No broker starts on an object store: nothing of a scan is there.


    The metadata logs are read after the segments: they have the ids of all producers that wrote before.
    """
    import numpy as np

    from formats.partition.producer_snapshot import ENTRY_DTYPE
    from snaprebuild.broker.status import findings_of, status_of
    from snaprebuild.cluster.scan_producer_ids import producer_ids_of_scan
    from snaprebuild.cluster.scan_storage import judged_scan

    if not all(state.store.is_local for state in source.log_dirs):
        return status_of((), wrong=0, suspect=0, missing=0, waiting=0, unread=0), [], ()
    now_ms = int(time.time() * 1000)
    judged = judged_scan(source, now_ms, release, reads_log=True)
    unread = [each for each in judged.other_findings if each.is_unread]
    later = {
        each.source.path: np.frombuffer(each.outcome.later_producers, ENTRY_DTYPE)
        for each in result.partitions
        if each.outcome.later_producers
    }
    ids = producer_ids_of_scan(judged, source, now_ms, later)
    return judged.status, [*unread, *findings_of(judged.fates), *ids], judged.partitions


def _receipt_result(path: str, *, details: bool) -> Result:
    from snaprebuild.cli.render.receipts import print_receipt, receipt_answer, receipt_document
    from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
    from snaprebuild.snapshots.receipts.verify_receipt import verify_receipt

    result = verify_receipt(load_receipt(path))
    return Result(
        lambda: receipt_document(result),
        result.findings,
        lambda: print_receipt(result, details=details),
        answer=lambda: receipt_answer(result),
    )


def verify_document(result: VerifyResult, seconds: float, cache: str | None, status: Status) -> Verify:
    """The JSON document."""
    from msgspec.structs import asdict

    from snaprebuild.cli.render.shared_parts import cache_use
    from snaprebuild.documents.run_facts import run_of
    from snaprebuild.documents.verify import Totals, Verify

    statuses = Counter(each.comparison.status.value for verdict in result.partitions for each in verdict.snapshots)
    return Verify(
        run=run_of(verdict.source.log_dir for verdict in result.partitions),
        as_of_ms=result.clock.as_of_ms,
        expiration_ms=result.clock.expiration_ms,
        elapsed_seconds=round(seconds, 4),
        cache=cache_use(cache, (verdict.outcome.cache_hits for verdict in result.partitions)),
        totals=Totals(**asdict(result.counts), **statuses),
        partitions=[_partition(verdict) for verdict in result.partitions],
        differences_not_listed=result.differences_not_listed,
        status=status.word.value,
        counts=status.counts,
        fates=[fate.document() for group in status.groups for fate in group.fates],
    )


def _partition(verdict: PartitionVerdict) -> VerifiedPartition:
    from snaprebuild.cli.render.shared_parts import inputs_of, needs_of
    from snaprebuild.documents.verify import Partition, Snapshot

    return Partition(
        **needs_of(verdict.source, verdict.needs),
        inputs=inputs_of(verdict.source),
        read_bytes=verdict.outcome.bytes_read,
        from_cache=verdict.outcome.cache_hits,
        snapshots=[
            Snapshot(offset=each.offset, snapshot_class=each.snapshot_class, comparison=each.comparison)
            for each in verdict.snapshots
        ],
    )


def _answer(result: VerifyResult, status: Status, findings: Sequence[Finding]) -> tuple[str, list[str]]:
    from snaprebuild.cli.render.status import LINE_MAX, answer_lines, snapshot_counts, waiting_text, words_after
    from snaprebuild.cli.result import SELECTION, given_words, none_read
    from snaprebuild.cli.table import counts_text
    from snaprebuild.findings import deleted_text, pluralize

    if not result.partitions and not status.concerns:
        answer, following = none_read(findings, are_named=True)
        return answer_lines(status, findings, [answer.rstrip(".")], []), following
    totals = Counter(each.comparison.status.value for verdict in result.partitions for each in verdict.snapshots)
    compared = f"{pluralize(len(result.partitions), 'partition')}: {counts_text(totals) or 'no snapshot'}"
    wrong = f"{pluralize(status.wrong, 'snapshot is', 'snapshots are')} proven wrong" if status.wrong else ""
    suspect = f"{pluralize(status.suspect, 'snapshot is', 'snapshots are')} suspect" if status.suspect else ""
    missing = f"{pluralize(status.missing, 'snapshot is', 'snapshots are')} missing" if status.missing else ""
    waiting = waiting_text(status).capitalize() if status.waiting + status.waiting_unknown else ""
    unjudged = _unjudged_text(result)
    whole = ". ".join(filter(None, (wrong, suspect, compared, missing, waiting)))
    alone = ". ".join(filter(None, (wrong, suspect, missing, waiting)))
    selected = given_words(*SELECTION)
    following = ["plan", *selected] if status.missing or status.wrong else []
    if status.wrong:
        following.append("--set-aside")
    if status.concerns:
        return answer_lines(status, findings, [whole], [f"{compared}.", unjudged]), words_after(status.concerns[0], selected)
    affected = sum(bool(each.needs.missing) for each in result.partitions)
    counts = snapshot_counts(status, len(result.partitions), affected, is_incomplete=bool(unread_paths(findings)))
    if not unread_paths(findings) and len(f"{deleted_text(findings)}{whole}.") <= LINE_MAX:
        return answer_lines(status, findings, [whole], [unjudged]), following
    return answer_lines(status, findings, [*([alone] if alone else []), *counts], [f"{compared}.", unjudged]), following


def _unjudged_text(result: VerifyResult) -> str:
    """How many partitions were not judged to the end; empty without any."""
    from snaprebuild.findings import Severity, pluralize

    unjudged = sum(
        any(each.severity > Severity.FINDING or each.is_unread for each in verdict.findings) for verdict in result.partitions
    )
    return f"{pluralize(unjudged, 'partition')} not judged to the end: stderr lists them." if unjudged else ""


def _print(result: VerifyResult, *, details: bool) -> None:
    from snaprebuild.cli.result import labels_of, print_table, print_text
    from snaprebuild.cli.table import counts_text

    labels = labels_of(verdict.source for verdict in result.partitions)
    rows = []
    for verdict in sorted(result.partitions, key=lambda each: -sum(one.comparison.proven_wrong for one in each.snapshots)):
        counts = Counter(each.comparison.status.value for each in verdict.snapshots)
        label = labels[verdict.source.path]
        rows.append((label, len(verdict.snapshots), len(verdict.needs.missing) or "-", counts_text(counts) or "-"))
    if rows:
        print_table(None, ("partition", "snapshots", "missing", "verdict"), rows, right=("snapshots", "missing"))
    listed = []
    for verdict in result.partitions:
        label = labels[verdict.source.path]
        for each in verdict.snapshots:
            comparison = each.comparison
            if details or comparison.status.value not in ("equal", "equal_after_expiry"):
                # Where there is no state to compare with, nothing is expected.
                expected = "-" if each.snapshot_class is None else comparison.expected_entries
                status = comparison.status.value.replace("_", " ")
                listed.append((label, each.offset, status, comparison.found_entries, expected, comparison.reason))
    if listed:
        columns = ("partition", "offset", "verdict", "entries", "expected", "because")
        title = "Every snapshot" if details else "Snapshots that are not equal"
        right = ("offset", "entries", "expected")
        print_table(title, columns, listed, right=right, drop=("expected", "entries"), all_rows=details)
    _print_differences(result, labels)
    if result.differences_not_listed:
        print_text(f"{result.differences_not_listed} entries that differ are counted and not listed, here or in --output json")


def _print_differences(result: VerifyResult, labels: dict[str, str]) -> None:
    from snaprebuild.cli.result import print_table

    rows: list[tuple[object, ...]] = []
    for verdict in result.partitions:
        label = labels[verdict.source.path]
        for each in verdict.snapshots:
            if not each.comparison.proven_wrong:
                continue
            certain = [difference for difference in each.comparison.differences if difference.is_certain]
            for difference in certain[:DIFFERENCES_SHOWN_MAX]:
                what = difference.kind.value if difference.field is None else difference.field
                values = (
                    "no entry" if difference.kind.value == "missing" else f"{difference.found} instead of {difference.expected}"
                )
                rows.append((label, each.offset, difference.producer_id, what, values, difference.consequence))
            shown = min(len(certain), DIFFERENCES_SHOWN_MAX)
            more = each.comparison.certain_count - shown
            listed = len(certain) - shown
            if more:
                them = "them" if listed == more else f"{listed} of them"
                text = f"and {more} more (--output json lists {them})"
                rows.append((label, each.offset, "...", "", "", text))
    if rows:
        columns = ("partition", "offset", "producer id", "differs", "found", "what it costs")
        print_table("Wrong entries", columns, rows, right=("offset", "producer id"))
