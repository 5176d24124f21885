"""The partitions that a query selects below some paths, each with the one log of it that is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from formats.errors import FormatError
from snaprebuild.consume.chosen_log import ChosenLog, by_partition, choose_log, read_replica
from snaprebuild.consume.partition_plan import check_offsets
from snaprebuild.consume.record_query import RecordQuery
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, FindingCause, finding_of_error, first_of
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes, open_source

__all__ = ["RecordSource", "open_record_source"]


@dataclass(slots=True)
class RecordSource:
    """What a query reads.

    Attributes:
        source: the listing of the paths.
        logs: of the selected partitions, by topic and number.
        findings: about directories that are not read, and about checkpoints.
    """

    source: Source
    logs: tuple[ChosenLog, ...]
    findings: list[Finding] = field(default_factory=list)


def open_record_source(paths: Sequence[str], query: RecordQuery, run: Run, server_properties: str | None = None) -> RecordSource:
    """Finds the partitions of a query, and chooses the log of each.

    Args:
        paths: directories, or prefixes of object stores.
        query: what is read.
        run: how object stores are reached.
        server_properties: configuration of a broker, whose ``log.dirs`` are read too; None without one.

    Raises:
        UsageError: nothing to read from, or a topic or partition that is named is not there.
        RefusedError: directories of one partition contradict each other, with the mode FAILFAST.
        ReadFailedError: a directory cannot be read, with the mode FAILFAST.
        FormatError: a small file is damaged, with the mode FAILFAST.
    """
    source = open_source(paths, server_properties, run=run)
    sources = [each for each in source.partitions if query.takes(each.directory.name.topic, each.directory.name.partition)]
    findings = [each for each in source.findings if each.cause is not FindingCause.NOTHING_FOUND]
    _check_names(query, sources, source)
    if not query.skips_faults:
        _check_listing(findings)
    logs = []
    for _, directories in by_partition(sources):
        try:
            logs.append(choose_log([read_replica(each) for each in directories]))
        except (FormatError, SnaprebuildError) as error:
            if not query.skips_faults:
                raise
            findings.append(finding_of_error(error, directories[0].directory.path))
    check_offsets(query, [(each.topic, each.partition) for each in logs])
    return RecordSource(source, tuple(logs), [*findings, *live_broker_notes(source)])


def _check_listing(findings: Sequence[Finding]) -> None:
    """Raises ReadFailedError if something below the paths is not read."""
    unread = [each for each in findings if each.severity and each.cause is not FindingCause.SETTINGS_UNREADABLE]
    if unread:
        others = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        raise ReadFailedError(f"{unread[0].message}{others}; mode PERMISSIVE reads the rest", path=unread[0].path)


def _check_names(query: RecordQuery, sources: Collection[PartitionSource], source: Source) -> None:
    """Raises UsageError if a name selects nothing: it is probably mistyped."""
    present = {(each.directory.name.topic, each.directory.name.partition) for each in (*source.partitions, *source.skipped)}
    place = source.partitions[0].log_dir.path if source.partitions else None
    topics = {topic for topic, _ in present}
    absent = sorted(set(query.subscribe) - topics)
    if absent:
        hint = Selection((absent[0],)).hint(topics, as_options=False)
        raise UsageError(f"no topic {absent[0]!r}{hint}", path=place)
    missing = sorted(query.assign - present)
    if missing:
        names = first_of([f"{topic}-{number}" for topic, number in missing])
        raise UsageError(f"no partition {names}", path=place)
    if query.topics and present and not sources:
        raise UsageError(Selection(query.topics).why_none(sorted(present), as_options=False), path=place)
    if query.subscribe_pattern is not None and present and not sources:
        raise UsageError(f"no topic matches {query.subscribe_pattern!r}: topics are {first_of(sorted(topics), 5)}", path=place)
