"""A JSON document as metrics for the textfile collector of Prometheus' node exporter: ``--metrics``.

Every number is one of the document, or a sum of such numbers. The format is the text format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents import inspect, scan, tier, verify
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.findings import Finding, Severity, unread_paths
from snaprebuild.published import Document, encoded_members
from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.storage.local.document_file import write_text_file
from snaprebuild.storage.local.regular_file import read_small_file
from snaprebuild.tier.audit.partition_audit import WRONG
from snaprebuild.tier.ledger.progress import LedgerProgress

__all__ = ["METRICS", "OTHER_TOPICS", "TOPICS_MAX", "write_metrics"]

TOPICS_MAX = 20
"""Topics with series of their own, the worst ones."""
OTHER_TOPICS = "(other)"
"""Value of the label ``topic`` for the sum of all others. No topic has parentheses in its name."""

LAST_SUCCESS = "snaprebuild_last_success_timestamp_seconds"
RUN = ("command",)
LOG_DIR = ("log_dir",)
STORE = ("store",)
TOPIC = ("topic",)
SCAN_TOPIC = ("topic", "remote_storage")
STORE_TOPIC = ("store", "topic")

METRICS: dict[str, tuple[tuple[str, ...], str]] = {
    "snaprebuild_last_run_timestamp_seconds": (RUN, "When the last run wrote this file, seconds since 1970."),
    "snaprebuild_last_run_exit_code": (RUN, "Exit code of that run: 0, 1, 3, 4 or 5."),
    LAST_SUCCESS: (RUN, "When the last complete run wrote this file: exit code 0 or 1, nothing unread. 0 before the first one."),
    "snaprebuild_unread_paths": (RUN, "Paths that were not read, or not to their end. No other metric covers them."),
    "snaprebuild_findings": ((*RUN, "severity"), "Findings: finding, refused, damaged or storage."),
    "snaprebuild_status": (
        (*RUN, "count"),
        "Of `scan`, `verify`, `tier audit`: fates, topics_without_id, wrong, suspect, missing, waiting, waiting_unknown, unread.",
    ),
    "snaprebuild_scan_partitions": (LOG_DIR, "Partitions."),
    "snaprebuild_scan_segment_bytes": (LOG_DIR, "Bytes of their segments."),
    "snaprebuild_scan_unread_paths": (LOG_DIR, "Paths in the log directory that were not read."),
    "snaprebuild_scan_snapshots": ((*LOG_DIR, "state"), "Snapshots that are missing, corrupt, suspect, misnamed or stray."),
    "snaprebuild_scan_blocked_segments": (LOG_DIR, "Rolled segments that would not be uploaded."),
    "snaprebuild_scan_stuck_bytes": (
        LOG_DIR,
        "Bytes that cannot be uploaded: the first blocked segment and all rolled ones above it.",
    ),
    "snaprebuild_scan_stuck_after_rebuild_bytes": (LOG_DIR, "The part of these bytes that a rebuild does not free."),
    "snaprebuild_scan_topic_stuck_bytes": (SCAN_TOPIC, "Bytes of the topic that cannot be uploaded."),
    "snaprebuild_scan_topic_missing_snapshots": (SCAN_TOPIC, "Snapshots that the topic needs and does not have."),
    "snaprebuild_verify_snapshots": ((*LOG_DIR, "status"), "Snapshots by the result of the comparison."),
    "snaprebuild_verify_wrong_snapshots": (LOG_DIR, "Snapshots that the log proves wrong."),
    "snaprebuild_verify_missing_snapshots": (LOG_DIR, "Snapshots that are needed and absent."),
    "snaprebuild_verify_topic_wrong_snapshots": (TOPIC, "Snapshots of the topic that the log proves wrong."),
    "snaprebuild_transactions": ((*LOG_DIR, "state"), "Transactions that are open, and those of them that are late."),
    "snaprebuild_transactions_held_bytes": (LOG_DIR, "Bytes of rolled segments above the last stable offset: they wait."),
    "snaprebuild_transactions_topic_late": (TOPIC, "Late transactions of the topic."),
    "snaprebuild_transactions_topic_held_bytes": (TOPIC, "Bytes of rolled segments of the topic above the last stable offset."),
    "snaprebuild_tier_audit_snapshots": ((*STORE, "verdict"), "Snapshots in remote storage by verdict."),
    "snaprebuild_tier_audit_topic_wrong_snapshots": (STORE_TOPIC, "Snapshots of the topic in remote storage that are wrong."),
    "snaprebuild_tier_audit_proven_copies": (STORE, "With --ledger: copies whose snapshots are proven."),
    "snaprebuild_tier_audit_oldest_proof_timestamp_seconds": (
        STORE,
        "With --ledger: when the oldest proof was made, seconds since 1970. 0 without any.",
    ),
    "snaprebuild_tier_audit_oldest_unproven_timestamp_seconds": (
        STORE,
        "With --ledger: when the oldest copy without a proof was uploaded, seconds since 1970. 0 if all are proven.",
    ),
    "snaprebuild_tier_audit_due_bytes": (STORE, "With --ledger: stored bytes of segments that this round has yet to read."),
    "snaprebuild_tier_inventory_copies": ((*STORE, "state"), "Copies of segments in remote storage by state."),
    "snaprebuild_tier_inventory_stored_bytes": (STORE, "Bytes in remote storage."),
    "snaprebuild_tier_inventory_state_bytes": ((*STORE, "state"), "Bytes in remote storage by state."),
    "snaprebuild_tier_inventory_unknown_objects": (STORE, "Objects of no known layout."),
    "snaprebuild_tier_inventory_topic_lost_copies": (STORE_TOPIC, "Copies of the topic without all of their objects."),
    "snaprebuild_tier_inventory_topic_gaps": (STORE_TOPIC, "Ranges of offsets of the topic without a copy, between copies."),
}
"""Labels and meaning of each metric; all are gauges. Each has the label ``file`` too: the name of the file that it is in."""


Row = tuple[Mapping[str, str], Mapping[str, float]]
"""Labels, and numbers by metric. Rows with the same labels are added up."""
Totals = dict[tuple[tuple[str, str], ...], dict[str, float]]
"""The sums, by labels."""


def write_metrics(path: str, document: Document, findings: Sequence[Finding], now_seconds: float, exit_code: int) -> None:
    """Writes the file whole, replacing an older one. A run that is not complete keeps the time of the last one that was.

    Args:
        path: of the file.
        document: of any command; those in ``_ROWS`` have numbers of their own.
        findings: of the run.
        now_seconds: since 1970.
        exit_code: of the process.

    Raises:
        RefusedError: it may not be written there.
        WriteFailedError: it cannot be written; an older one is as it was.
    """
    is_complete = exit_code in (0, 1) and not unread_paths(findings)
    labels = {"command": _command_of(document)}
    run = {
        "snaprebuild_last_run_timestamp_seconds": round(now_seconds, 3),
        "snaprebuild_last_run_exit_code": exit_code,
        LAST_SUCCESS: round(now_seconds if is_complete else _earlier_success(path, document), 3),
        "snaprebuild_unread_paths": len(unread_paths(findings)),
    }
    rows = [(labels, run), *_severities(labels, findings), *_counts(labels, document)]
    rows_of = _ROWS.get(document.NAME)
    if rows_of is not None:
        rows += rows_of(document)
    write_text_file(path, _text(document, os.path.basename(path), rows))


def _earlier_success(path: str, document: Document) -> float:
    """Moment of the last success, in seconds, by the older file; 0 without one."""
    try:
        text = (read_small_file(path) or b"").decode(errors="replace")
    except (ReadFailedError, ChangedFileError):
        return 0
    command = re.escape(_command_of(document))
    match = re.search(rf'^{LAST_SUCCESS}\{{command="{command}",.*\}} ([0-9]+(?:\.[0-9]+)?)$', text, re.MULTILINE)
    return float(match[1]) if match else 0


def _text(document: Document, file: str, rows: Iterable[Row]) -> Iterator[str]:
    totals = _without_most_topics(_added_up(rows))
    # A later run recognizes by this line that it may replace the file.
    yield f'# Metrics of a document with "schema": "{document.schema_id()}".\n'
    for name, (labels, meaning) in METRICS.items():
        series = [(dict(keys), values[name]) for keys, values in totals.items() if name in values]
        if series:
            yield f"# HELP {name} {meaning}\n# TYPE {name} gauge\n"
        for keys, value in series:
            pairs = [f'{label}="{_escaped(keys[label])}"' for label in labels]
            pairs.append(f'file="{_escaped(file)}"')
            yield f"{name}{{{','.join(pairs)}}} {value}\n"


def _added_up(rows: Iterable[Row]) -> Totals:
    totals: Totals = {}
    for labels, values in rows:
        sums = totals.setdefault(tuple(labels.items()), {})
        for name, value in values.items():
            sums[name] = sums.get(name, 0) + value
    return totals


def _without_most_topics(totals: Totals) -> Totals:
    """Totals of the worst topics, and the sum of all others for each value of the other labels. The first metric decides, then the next."""
    topics = [labels for labels in totals if "topic" in dict(labels)]
    topics.sort(key=lambda labels: tuple(totals[labels].values()), reverse=True)
    others = set(topics[TOPICS_MAX:])
    return _added_up((dict(labels) | ({"topic": OTHER_TOPICS} if labels in others else {}), totals[labels]) for labels in totals)


def _escaped(text: str) -> str:
    """The value of a label. Bytes of a file name that are no text are written in hexadecimal."""
    text = text.encode(errors="backslashreplace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _command_of(document: Document) -> str:
    return document.NAME.replace("-", " ")


def _severities(labels: Mapping[str, str], findings: Sequence[Finding]) -> Iterator[Row]:
    counts = Counter(each.severity for each in findings)
    for severity in Severity:
        if severity is not Severity.NOTE:
            yield {**labels, "severity": severity.name.lower()}, {"snaprebuild_findings": counts[severity]}


def _counts(labels: Mapping[str, str], document: Document) -> Iterator[Row]:
    """The counts of a document with a status; each is there, also as 0."""
    counts: StatusCounts | None = getattr(document, "counts", None)
    if counts is not None:
        for name in counts.__struct_fields__:
            yield {**labels, "count": name}, {"snaprebuild_status": getattr(counts, name)}


def _scan(document: scan.Scan) -> Iterator[Row]:
    for each in document.log_dirs:
        labels = {"log_dir": each.path}
        totals = each.totals
        yield (
            labels,
            {
                "snaprebuild_scan_partitions": totals.partitions,
                "snaprebuild_scan_segment_bytes": totals.size_bytes,
                "snaprebuild_scan_unread_paths": totals.unread,
                "snaprebuild_scan_blocked_segments": totals.blocked_segments,
                "snaprebuild_scan_stuck_bytes": totals.stuck_bytes,
                "snaprebuild_scan_stuck_after_rebuild_bytes": totals.stuck_bytes_after_rebuild,
            },
        )
        for state in ("missing", "corrupt", "suspect", "misnamed", "stray"):
            yield {**labels, "state": state}, {"snaprebuild_scan_snapshots": getattr(totals, state)}
    for topic in document.topics:
        yield (
            {"topic": topic.topic, "remote_storage": topic.remote_storage},
            {
                "snaprebuild_scan_topic_stuck_bytes": topic.totals.stuck_bytes,
                "snaprebuild_scan_topic_missing_snapshots": topic.totals.missing,
            },
        )


def _verify(document: verify.Verify) -> Iterator[Row]:
    for each in document.partitions:
        labels = {"log_dir": os.path.dirname(each.path)}
        wrong = sum(snapshot.comparison.proven_wrong for snapshot in each.snapshots)
        counts = Counter(snapshot.comparison.status for snapshot in each.snapshots)
        for status in ComparisonStatus:
            yield {**labels, "status": status.value}, {"snaprebuild_verify_snapshots": counts[status]}
        missing = len(each.missing_offsets)
        yield labels, {"snaprebuild_verify_wrong_snapshots": wrong, "snaprebuild_verify_missing_snapshots": missing}
        yield {"topic": each.topic}, {"snaprebuild_verify_topic_wrong_snapshots": wrong}


def _transactions(document: inspect.Transactions) -> Iterator[Row]:
    for each in document.partitions:
        labels = {"log_dir": os.path.dirname(each.path)}
        yield {**labels, "state": "open"}, {"snaprebuild_transactions": each.totals.open}
        yield {**labels, "state": "late"}, {"snaprebuild_transactions": each.totals.late}
        yield labels, {"snaprebuild_transactions_held_bytes": each.held_segment_bytes}
        late = each.totals.late
        held_bytes = each.held_segment_bytes
        yield (
            {"topic": each.topic},
            {"snaprebuild_transactions_topic_late": late, "snaprebuild_transactions_topic_held_bytes": held_bytes},
        )


def _tier_audit(document: tier.TierAudit) -> Iterator[Row]:
    labels = {"store": document.location}
    for verdict, count in encoded_members(document.totals).items():
        yield {**labels, "verdict": verdict}, {"snaprebuild_tier_audit_snapshots": count}
    for each in document.partitions:
        wrong = sum(encoded_members(each.totals)[verdict] for verdict in WRONG)
        yield {**labels, "topic": each.topic}, {"snaprebuild_tier_audit_topic_wrong_snapshots": wrong}
    if document.ledger is not None:
        yield from _ledger(labels, document.ledger)


def _ledger(labels: Mapping[str, str], progress: LedgerProgress) -> Iterator[Row]:
    yield (
        labels,
        {
            "snaprebuild_tier_audit_proven_copies": progress.proven,
            "snaprebuild_tier_audit_oldest_proof_timestamp_seconds": (progress.since_ms or 0) / 1000,
            "snaprebuild_tier_audit_oldest_unproven_timestamp_seconds": (progress.oldest_unproven_ms or 0) / 1000,
            "snaprebuild_tier_audit_due_bytes": progress.due_bytes,
        },
    )


def _tier_inventory(document: tier.TierInventory) -> Iterator[Row]:
    labels = {"store": document.location}
    yield labels, {"snaprebuild_tier_inventory_unknown_objects": document.unknown_objects}
    for row in document.states:
        yield {**labels, "state": row.state}, {"snaprebuild_tier_inventory_state_bytes": row.stored_bytes}
    for each in document.partitions:
        yield labels, {"snaprebuild_tier_inventory_stored_bytes": each.stored_bytes}
        for state, count in encoded_members(each.totals).items():
            yield {**labels, "state": state}, {"snaprebuild_tier_inventory_copies": count}
        yield (
            {**labels, "topic": each.topic},
            {
                "snaprebuild_tier_inventory_topic_lost_copies": each.totals.lost,
                "snaprebuild_tier_inventory_topic_gaps": len(each.gaps),
            },
        )


_ROWS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "scan": _scan,
    "verify": _verify,
    "inspect-transactions": _transactions,
    "tier-audit": _tier_audit,
    "tier-inventory": _tier_inventory,
}
"""Functions by the name of the document."""
