"""The partitions that a query selects below some paths, each with the one log of it that is read."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from formats.errors import FormatError
from formats.partition.file_names import DirectoryForm
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.consume.chosen_log import ChosenLog, by_partition, choose_log, read_replica
from snaprebuild.consume.partition_plan import check_offsets
from snaprebuild.consume.record_query import RecordQuery
from snaprebuild.consume.remote_logs import log_in_tier, with_remote_copies
from snaprebuild.errors import ReadFailedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error, first_of
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes, open_source
from snaprebuild.storage.store import absolute
from snaprebuild.storage.store_path import path_of
from snaprebuild.tier.remote_store import StoreAccess, Tier, open_tier

__all__ = ["RecordSource", "open_record_source"]


@dataclass(slots=True)
class RecordSource:
    """The logs of a query.

    Attributes:
        source: the listing of the paths.
        logs: of the selected partitions that can be read, by topic and number.
        selected: topic and number of all selected partitions.
        present: topic and number of each partition that is there, selected or not.
        store: location of remote storage; None without one.
        findings: about directories that are not read, and about checkpoints.
    """

    source: Source
    logs: tuple[ChosenLog, ...]
    selected: tuple[tuple[str, int], ...]
    present: frozenset[tuple[str, int]]
    store: str | None = None
    findings: list[Finding] = field(default_factory=list)


def open_record_source(
    paths: Sequence[str],
    query: RecordQuery,
    run: Run,
    server_properties: str | None = None,
    remote: StoreAccess | None = None,
) -> RecordSource:
    """Finds the partitions of a query, and chooses the log of each.

    Args:
        paths: directories, or prefixes of object stores; none if remote storage alone is read.
        query: what is read.
        run: how object stores are reached.
        server_properties: configuration of a broker, whose ``log.dirs`` are read too; None without one.
        remote: remote storage of the partitions; None without one.

    Raises:
        UsageError: nothing to read from, or a topic or partition that is named is not there.
        RefusedError: directories or copies of one partition contradict each other, with the mode FAILFAST.
        ReadFailedError: a directory or copy cannot be read, with the mode FAILFAST.
        FormatError: a small file is damaged, with the mode FAILFAST.
    """
    is_remote_alone = remote is not None and not paths and server_properties is None
    source = Source((), ()) if is_remote_alone else open_source(paths, server_properties, run=run)
    if remote is None and not source.partitions and not source.skipped:
        _check_no_store(paths, run)
    tier = None if remote is None else open_tier(remote, run.stores)
    place = next(iter(paths), server_properties) or ("" if remote is None else remote.root.path)
    return _Opening(query, source, tier, place).opened()


def _check_no_store(paths: Sequence[str], run: Run) -> None:
    """Raises UsageError if a path without a log directory is remote storage."""
    for path in paths:
        try:
            tier = open_tier(StoreAccess(path_of(absolute(path), run.stores)), run.stores)
        except SnaprebuildError:
            continue  # it is none
        if tier.partitions:
            raise UsageError("is remote storage, and no log directory: name it with remote", path=path)


class _Opening:
    def __init__(self, query: RecordQuery, source: Source, tier: Tier | None, place: str) -> None:
        self._query = query
        self._place = place
        self._source = source
        self._tier = tier
        others = {each.directory.path for each in source.skipped if not query.takes(*_name_of(each))}
        self._findings = [each for each in source.findings if each.path not in others]
        self._findings += [] if tier is None else tier.findings

    def opened(self) -> RecordSource:
        query = self._query
        on_disk = [each for each in self._source.partitions if query.takes(*_name_of(each))]
        remote_alone = self._remote_alone({_name_of(each) for each in on_disk})
        skipped = [each for each in self._source.skipped if query.takes(*_name_of(each))]
        self._check_topic_ids()
        self._check_names(bool(on_disk or remote_alone or skipped))
        if not query.skips_faults:
            strays = {each.directory.path for each in skipped if each.directory.name.form is DirectoryForm.STRAY}
            # As a future or deleted directory: the partition is another broker's. If the caller names its path, it is refused.
            _check_listing([each for each in self._findings if each.path not in strays or each.severity > Severity.FINDING])
            _check_compactions(skipped)
        if query.selection is None or on_disk or remote_alone:
            self._findings += self._unmatched()
        logs = [
            self._tried(directories[0].directory.path, partial(self._on_disk, directories))
            for _, directories in by_partition(on_disk)
        ]
        logs += [self._tried(f"{each.topic}-{each.partition}", partial(self._in_tier, each)) for each in remote_alone]
        chosen = sorted((each for each in logs if each is not None), key=lambda each: (each.topic, each.partition))
        check_offsets(query, [(each.topic, each.partition) for each in chosen])
        selected = {_name_of(each) for each in on_disk} | {(each.topic, each.partition) for each in remote_alone}
        return RecordSource(
            source=self._source,
            logs=tuple(chosen),
            selected=tuple(sorted(selected)),
            present=frozenset(self._present),
            store=None if self._tier is None else self._tier.base.path,
            findings=[*self._findings, *live_broker_notes(self._source)],
        )

    @property
    def _tolerates_loss(self) -> bool:
        return self._query.skips_faults or not self._query.fails_on_data_loss

    def _on_disk(self, directories: Sequence[PartitionSource]) -> ChosenLog:
        log = choose_log([read_replica(each) for each in directories])
        return (
            log
            if self._tier is None
            else with_remote_copies(log, self._tier, self._query.topic_ids.get(log.topic), tolerates_loss=self._tolerates_loss)
        )

    def _in_tier(self, partition: TopicIdPartition) -> ChosenLog | None:
        assert self._tier is not None
        remote = self._tier.partition(partition)
        log = log_in_tier(remote, tolerates_loss=self._tolerates_loss)
        if log is None:
            self._findings += remote.findings
        return log

    def _tried(self, path: str, choose: Callable[[], ChosenLog | None]) -> ChosenLog | None:
        try:
            return choose()
        except (FormatError, SnaprebuildError) as error:
            if not self._query.skips_faults or isinstance(error, UsageError):
                raise
            self._findings.append(finding_of_error(error, path))
            return None

    def _remote_alone(self, on_disk: Collection[tuple[str, int]]) -> list[TopicIdPartition]:
        """The selected partitions that only remote storage has.

        Raises:
            UsageError: several topics had one name.
        """
        if self._tier is None:
            return []
        found: dict[tuple[str, int], TopicIdPartition] = {}
        for each in self._partitions_in_tier:
            name = (each.topic, each.partition)
            if name in on_disk or not self._query.takes(*name):
                continue
            if self._query.topic_ids.get(each.topic, each.topic_id) != each.topic_id:
                continue
            if name in found:
                among = f"{uuid_to_text(found[name].topic_id)}, {uuid_to_text(each.topic_id)}"
                raise UsageError(
                    f"has copies of several topics called {each.topic}: name the id of one, of {among}", path=self._tier.base.path
                )
            found[name] = each
        return list(found.values())

    @property
    def _partitions_in_tier(self) -> list[TopicIdPartition]:
        """The partitions of the store, with those of which only the metadata log has finished copies."""
        if self._tier is None:
            return []
        logs = self._tier.logs
        recorded = [
            each for each, log in logs.partitions.items() if each not in logs.deletions and any(map(log.is_live, log.segments))
        ]
        return list(dict.fromkeys((*self._tier.partitions, *recorded)))

    def _check_topic_ids(self) -> None:
        """Raises UsageError if remote storage has no topic of an id: it is probably mistyped."""
        if self._tier is None:
            return
        known = {(each.topic, each.topic_id) for each in (*self._tier.partitions, *self._tier.logs.partitions)}
        for topic, topic_id in self._query.topic_ids.items():
            if (topic, topic_id) not in known:
                others = [uuid_to_text(each) for name, each in sorted(known) if name == topic]
                there = f"; ids of {topic} are {first_of(others)}" if others else ""
                raise UsageError(f"has no topic {topic} with the id {uuid_to_text(topic_id)}{there}", path=self._tier.base.path)

    @property
    def _present(self) -> set[tuple[str, int]]:
        """Topic and number of each partition that is there, selected or not."""
        present = {_name_of(each) for each in (*self._source.partitions, *self._source.skipped)}
        return present | {(each.topic, each.partition) for each in self._partitions_in_tier}

    def _unmatched(self) -> list[Finding]:
        """Findings about names and patterns that match no topic, while others do."""
        present = self._present
        topics = {topic for topic, _ in present}
        findings = []
        selection = self._query.selection
        patterns = self._query.topics if selection is None else selection.topics
        for pattern in patterns:
            if present and not any(fnmatch.fnmatchcase(topic, pattern) for topic in topics):
                hint = Selection((pattern,)).hint(topics, as_options=selection is not None)
                message = f"no topic matches {pattern!r}{hint}"
                findings.append(Finding("nothing-found", Severity.FINDING, self._place, message))
        return findings

    def _check_names(self, selects: bool) -> None:
        """Raises UsageError if a name selects nothing: it is probably mistyped."""
        query = self._query
        present = self._present
        topics = {topic for topic, _ in present}
        absent = sorted(set(query.subscribe) - topics)
        if absent:
            hint = Selection((absent[0],)).hint(topics, as_options=False)
            raise UsageError(f"no topic {absent[0]!r}{hint}")
        missing = sorted(query.assign - present)
        if missing:
            names = first_of([f"{topic}-{number}" for topic, number in missing])
            raise UsageError(f"no partition {names}")
        if query.topics and present and not selects:
            raise UsageError(Selection(query.topics).why_none(sorted(present), as_options=False))
        if query.subscribe_pattern is not None and present and not selects:
            raise UsageError(f"no topic matches {query.subscribe_pattern!r}: topics are {first_of(sorted(topics), 5)}")


def _name_of(source: PartitionSource) -> tuple[str, int]:
    name = source.directory.name
    return name.topic, name.partition


def _check_compactions(skipped: Sequence[PartitionSource]) -> None:
    """Raises RefusedError if a selected log is not read because the log cleaner of its broker is at work there."""
    for each in skipped:
        directory = each.directory
        if directory.swapped and directory.name.form is DirectoryForm.PLAIN:
            message = "the broker compacts this log now: run again, or read the rest with mode PERMISSIVE"
            raise RefusedError(message, path=directory.path)


def _check_listing(findings: Sequence[Finding]) -> None:
    """Raises ReadFailedError if something below the paths is not read."""
    harmless = (FindingCause.SETTINGS_UNREADABLE, FindingCause.NOTHING_FOUND)
    unread = [each for each in findings if each.severity and each.cause not in harmless]
    if unread:
        others = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        raise ReadFailedError(f"{unread[0].message}{others}; mode PERMISSIVE reads the rest", path=unread[0].path)
