"""The copies of one partition, put together as a log, and what is told of their snapshots."""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections import deque
from dataclasses import replace
from functools import partial

import numpy as np

from formats import limits
from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.log.batch_headers import TailKind
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.file_names import DirectoryForm, PartitionDirectoryName
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import HEADER_BYTES, read_entries, write_entries
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.aiven_manifest import read_aiven_manifest
from formats.remote.local_tier_name import LocalTierFile
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, impossible_entries
from snaprebuild.replay.window import window_start
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.engine.partition_replay import BoundaryState
from snaprebuild.snapshots.engine.window_proof import Clock
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.verify import PartitionVerdict, SnapshotVerdict
from snaprebuild.storage.local.index_hints import read_last_timestamp_hint
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir, SegmentFiles
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierPartition, UnknownObjects
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import ReadStore, Store
from snaprebuild.storage.thread_pool import at_once
from snaprebuild.tier.audit.audited_copy import ReadableCopy
from snaprebuild.tier.audit.inconsistency import Neighbour, suspicion
from snaprebuild.tier.audit.overlaps import RemoteLine, follow_one_another, remote_line
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.audit.result import WRONG, AuditedCopy, AuditedPartition, TierAudit, Verdict
from snaprebuild.tier.audit.window import Window
from snaprebuild.tier.copies import CopyFacts, copy_facts, fault_code, manifest_bytes, missing_objects
from snaprebuild.tier.cost import CopyRead
from snaprebuild.tier.inventory import ICEBERG_LACKS, unknown_objects
from snaprebuild.tier.levels import AuditLevel
from snaprebuild.tier.remote_log import RemoteLog
from snaprebuild.tier.remote_partition import trimmed_epochs

__all__ = ["AuditChain"]

BAD_COPY = "tier-bad-copy"


class AuditChain:
    """One partition: first what the listing and the manifests tell, then what is to be read, then the verdicts."""

    def __init__(
        self,
        audit: TierAudit,
        store: Store,
        found: TierPartition,
        partition: TopicIdPartition | None,
        log: RemoteLog | None,
        private_keys: PrivateKeys,
        keep: ProvenSnapshots | None,
    ) -> None:
        """Takes what the listing has; nothing is read."""
        self._audit, self._keep, self._log = audit, keep, log
        self._base, self._private_keys = store, private_keys
        self._store: ReadStore = store
        self._layout = found.layout
        topic = found.topic if partition is None else partition.topic
        self._named = PartitionDirectoryName(topic, found.partition, DirectoryForm.PLAIN)
        self.audited = AuditedPartition(topic, found.topic_id, found.partition, found.layout, [])
        self._place = f"{audit.root}: {self.audited.name} ({uuid_to_text(found.topic_id)})"
        self._undecrypted: dict[str, list[TierCopy]] = {}
        self._iceberg = 0
        self._readable: list[ReadableCopy] = []
        self._line = RemoteLine()
        self._lost: list[AuditedCopy] = []
        self._by_name: dict[str, AuditedCopy] = {}
        self._by_end: dict[int, AuditedCopy] = {}
        self.copies = [copy for copy in found.copies if log is None or log.is_live(copy.segment_id)]
        """Those that are live, or all where nobody tells."""

    # ------------------------------------------------------------------------------------------------------------ manifests

    def look(self) -> None:
        """Reads the manifests."""
        whole = [copy for copy in self.copies if not missing_objects(self._layout, copy)]
        facts = at_once(partial(copy_facts, self._base, self._audit.root, self._layout), whole, manifest_bytes)
        facts_of = dict(zip((copy.segment_id for copy in whole), facts, strict=True))
        found = [self._looked_at(copy, facts_of.get(copy.segment_id)) for copy in self.copies]
        self._find_lost()
        self._readable = [each for each in found if each is not None]
        if self._layout is TierLayout.AIVEN:
            known = sorted(filter(None, (each.known(self._audit.root) for each in self._readable)), key=lambda each: each.stem)
            self._store = TierStore(self._base, self._private_keys, tuple(known))
        if self.ends_are_known:
            self.put_together()

    def _find_lost(self) -> None:
        """Live copies of which the store has no object."""
        there = {copy.segment_id for copy in self.copies}
        for segment in () if self._log is None else self._log.segments.values():
            if segment.segment_id in there or self._log is None or not self._log.is_live(segment.segment_id):
                continue
            audited = AuditedCopy(segment.segment_id, segment.start_offset, segment.end_offset, 0, why="its objects are gone")
            self.audited.copies.append(audited)
            lost = TierCopy(segment.start_offset, segment.segment_id, {})
            self._find("tier-lost", Severity.DAMAGED, "finished, and its objects are gone", lost)
            self._lost.append(audited)
        self.audited.copies.sort(key=lambda each: each.start_offset)

    def _gap_below(self, offset: int) -> AuditedCopy | None:
        """A lost copy below an offset, some of whose offsets no other copy holds."""
        for lost in self._lost:
            assert lost.end_offset is not None
            parts = ((self._readable[part.number].copy.base_offset, part.until) for part in self._line.parts)
            held = sum(max(min(until, lost.end_offset + 1) - max(start, lost.start_offset), 0) for start, until in parts)
            if lost.start_offset < offset and held <= lost.end_offset - lost.start_offset:
                return lost
        return None

    def _looked_at(self, copy: TierCopy, facts: CopyFacts | None) -> ReadableCopy | None:
        """What needs no segment; the copy, if its segment can be read."""
        segment = None if self._log is None else self._log.segments.get(copy.segment_id)
        end = None if facts is None else facts.end_offset
        end = end if segment is None else segment.end_offset
        audited = AuditedCopy(copy.segment_id, copy.base_offset, end, copy.size_bytes, copy=copy)
        self.audited.copies.append(audited)
        if facts is None:
            missing = missing_objects(self._layout, copy)
            self._iceberg += missing == ICEBERG_LACKS
            audited.why = f"objects of it are missing: {', '.join(missing)}"
            if segment is not None and missing != ICEBERG_LACKS:
                self._lost.append(audited)
                self._find("tier-lost", Severity.DAMAGED, f"finished, and {audited.why}", copy)
            return None
        if facts.fault is not None:
            audited.why = facts.fault
            self.audited.damaged(copy.base_offset)
            self._tell(*fault_code(is_unread=facts.is_unread), facts.fault, copy, is_unread=facts.is_unread)
            return None
        if facts.torn_index is not None:
            self._tell(BAD_COPY, Severity.DAMAGED, facts.torn_index, copy)
        least = HEADER_BYTES + (0 if facts.key_id is None else ENCRYPTION_BYTES)
        if facts.snapshot_bytes == 0:
            audited.verdict, audited.why = Verdict.ZERO_BYTES, "it has no bytes: a broker takes it and starts without producers"
        elif facts.snapshot_bytes is not None and facts.snapshot_bytes < least:
            audited.verdict, audited.why = Verdict.CORRUPT, f"it has {facts.snapshot_bytes} bytes, less than a header"
        if (fault := self._key_fault(facts)) is not None:
            audited.not_read(f"it {fault}")
            self._undecrypted.setdefault(fault, []).append(copy)
            return None
        if segment is not None and segment.size_bytes != facts.segment_bytes:
            message = f"its segment has {facts.segment_bytes} bytes, and the metadata log says {segment.size_bytes}"
            self._find(BAD_COPY, Severity.DAMAGED, message, copy)
            audited.not_read(message)
            return None
        if segment is not None:
            epochs = tuple((each.epoch, each.start_offset) for each in segment.leader_epochs)
            time = segment.event_timestamp_ms
            largest: int | None = segment.max_timestamp_ms
        else:
            epochs, time, largest = facts.leader_epochs, facts.event_timestamp_ms or 0, facts.max_timestamp_ms
        return ReadableCopy(copy, self._layout, facts, audited, epochs, time, largest if largest is None or largest >= 0 else None)

    def _key_fault(self, facts: CopyFacts) -> str | None:
        """Why a copy cannot be decrypted with the private keys; None where it can."""
        encryption = None if facts.manifest is None else read_aiven_manifest(facts.manifest).encryption
        return None if encryption is None else self._private_keys.fault(encryption)

    def _find(self, code: str, severity: Severity, message: str, copy: TierCopy) -> None:
        self.audited.damaged(copy.base_offset)
        self._tell(code, severity, message, copy)

    def _tell(self, code: str, severity: Severity, message: str, copy: TierCopy, *, is_unread: bool = False) -> None:
        text = f"copy {uuid_to_text(copy.segment_id)}: {message}"
        self._audit.findings.append(Finding(code, severity, self._place, text, copy.base_offset, is_unread=is_unread))

    # ------------------------------------------------------------------------------------------------------------ the log

    @property
    def ends_are_known(self) -> bool:
        """Whether no segment has to be opened to know where it ends."""
        return all(each.end_offset is not None for each in self._readable)

    def find_ends(self) -> None:
        """Asks the batches where segments end of which nothing else tells, other files for the rest, and puts the copies together."""
        for each in self._readable:
            if each.end_offset is None:
                try:
                    end = log_end_offset(self._directory([each.segment(with_index=True)], [])) - 1
                except (FormatError, ReadFailedError) as error:
                    each.audited.not_read(error.message)
                else:
                    each.audited.end_offset = end if end >= each.copy.base_offset else None
        self._readable = [each for each in self._readable if each.end_offset is not None]
        needs_times = self._audit.level is AuditLevel.REACHABLE or all(each.copy.base_offset for each in self._readable)
        for each in self._readable:
            self._find_epochs(each)
            if each.max_timestamp_ms is None and needs_times:
                path = f"{self._audit.root}/{each.file_name(LocalTierFile.TIME_INDEX)}"
                each.max_timestamp_ms = read_last_timestamp_hint(path, self._store)
        self.put_together()

    def put_together(self) -> None:
        """Which copies make the log, where all ends are known."""
        epochs: tuple[tuple[int, int], ...] = ()
        if not follow_one_another([each.span for each in self._readable]):
            for each in self._readable:
                self._find_epochs(each)
            newest = max(self._readable, key=lambda each: (*each.span.rank[:1], each.span.end_offset, each.event_time_ms))
            epochs = self._checkpoint(newest) or newest.epochs
        self._line = remote_line([each.span for each in self._readable], epochs)
        for number, why in self._line.left.items():
            self._readable[number].audited.not_read(why)

    def _find_epochs(self, copy: ReadableCopy) -> None:
        """Leader epochs of a segment, where only a file beside it tells."""
        if not copy.epochs:
            assert copy.end_offset is not None
            entries = [LeaderEpochEntry(*entry) for entry in self._checkpoint(copy)]
            copy.epochs = trimmed_epochs(entries, copy.copy.base_offset, copy.end_offset)

    def _checkpoint(self, copy: ReadableCopy) -> tuple[tuple[int, int], ...]:
        """Leader epochs of the log up to the end of a copy; none where they cannot be read."""
        path = f"{self._audit.root}/{copy.file_name(LocalTierFile.LEADER_EPOCHS)}"
        try:
            data = self._store.read_small(path, limits.TEXT_FILE_BYTES_MAX)
            return tuple((entry.epoch, entry.start_offset) for entry in read_leader_epoch_checkpoint(data or b"", file=path))
        except (FormatError, ReadFailedError):
            return ()

    @property
    def members(self) -> list[ReadableCopy]:
        """The copies whose ends are boundaries of the log, by end."""
        found = [self._readable[number] for number in self._line.members]
        return sorted(found, key=lambda each: (each.end_offset or 0, each.copy.base_offset))

    def _directory(self, segments: list[SegmentFiles], snapshots: list[tuple[int, ListedFile]]) -> PartitionDir:
        ends = [part.until for part in self._line.parts[-1:]]
        files = tuple(segments), tuple(snapshots)
        directory = PartitionDir(self._audit.root, self._named, 0, *files, has_leader_epochs=True, store=self._store)
        return replace(directory, log_end_offset=ends[0]) if ends else directory

    def source(self) -> PartitionSource | None:
        """The log as a partition directory; None where no copy can be read."""
        if not self._line.parts:
            return None
        segments = [self._readable[part.number].segment(part.until) for part in self._line.parts]
        snapshots: list[tuple[int, ListedFile]] = []
        for each in self.members:
            assert each.end_offset is not None
            listed, boundary = each.snapshot(), each.end_offset + 1
            if listed is None:
                self._by_end[boundary] = each.audited
            else:
                self._by_name[listed.name] = each.audited
                snapshots.append((boundary, listed))
        self.audited.replayed_from = segments[0].base_offset
        directory = self._directory(segments, snapshots)
        return PartitionSource(directory, LogDirState(self._audit.root, store=self._base), self.audited.name)

    def window(self, clock: Clock, local_log_start: int | None) -> Window | None:
        """What is replayed for the snapshots that a follower may still start from; None where there are none.

        A follower takes the snapshot of the copy that holds the offset below the one where it starts: the first on the leader's disk
        (KIP-405), or the first that is in no copy (KIP-1023). The former only goes up, to the latter at most.

        Args:
            clock: for expiry: what is older matters to nobody who loads the state at that moment, but open transactions.
            local_log_start: first offset on the leader's disk; None where nobody tells.
        """
        self.audited.local_log_start = local_log_start
        source = self.source()
        if source is None:
            return None
        ends = [each.end_offset + 1 for each in self.members if each.end_offset is not None]
        last = max(ends, default=0)
        # Also above the last copy, as a mistaken or a later one is: a follower may start behind that one in any case.
        reachable = [end for end in ends if end >= (last if local_log_start is None else min(local_log_start, last))]
        if local_log_start is None or local_log_start > last:
            why = "a follower may start from the last copy (KIP-1023); --local-log-start or --log-dir shows from which others"
        else:
            why = f"the leader's disk begins at {local_log_start}, and no follower starts below"
        verdict = Verdict.REACH_UNKNOWN if local_log_start is None else Verdict.UNREACHABLE
        for each in self.members:
            if each.end_offset is not None and each.end_offset + 1 not in reachable:
                each.audited.verdict, each.audited.why = verdict, why
        if not reachable:
            self.audited.replayed_from = None
            return None
        segments = source.directory.segments
        ending = bisect_left(segments, min(reachable), key=lambda segment: segment.base_offset) - 1
        young = self._first_young(clock)
        first = max(min(young, ending), 0)
        start = segments[first].base_offset
        evidence = tuple(each for each in source.directory.snapshots if each[0] >= start)
        self.audited.replayed_from = start
        narrowed = replace(source, directory=replace(source.directory, snapshots=evidence))
        return Window(narrowed, first, min(reachable), self._proof(start), below_is_old=young > 0)

    def whole(self, source: PartitionSource, clock: Clock) -> Window:
        """All copies as a window, where they do not begin at offset 0: an equal replay alone does not prove a snapshot."""
        first = source.directory.segments[0].base_offset
        return Window(source, 0, 0, self._proof(first), below_is_old=self._first_young(clock) > 0)

    def _first_young(self, clock: Clock) -> int:
        """Index of the first copy that holds a timestamp within the expiration."""
        times = [self._readable[part.number].max_timestamp_ms for part in self._line.parts]
        return window_start(times, clock.as_of_ms, clock.expiration_ms)

    def _proof(self, start: int) -> str:
        """What would prove what a window from an offset on does not."""
        first = self._readable[self._line.parts[0].number].copy.base_offset
        if first == 0:
            return "--level full replays what lies below, too, and proves it"
        below = f"--level full replays from {first} on, which may prove more; " if first < start else ""
        return f"{below}what was deleted below {first} is in no copy: a replica's snapshot at that offset would prove it"

    # ------------------------------------------------------------------------------------------------------------ what is read

    def reads(self, window: Window | None = None) -> list[CopyRead]:
        """What the level is going to read, beside the manifests."""
        if self._audit.level is AuditLevel.STRUCTURE:
            return [each.read(snapshot=True) for each in self._readable]
        is_full = self._audit.level is AuditLevel.FULL
        if not self.ends_are_known:
            return [
                each.read(segment=True, compared=each.is_compared(), snapshot=True, index=is_full, end=each.end_offset is None)
                for each in self._readable
            ]
        if not is_full:
            return [] if window is None else self._reads_of(window)
        whole, members = {part.number: part.until for part in self._line.parts}, set(self._line.members)
        # Which transactions were aborted is certain where the log is replayed from offset 0.
        indexes = set(whole) if any(self._readable[number].copy.base_offset == 0 for number in whole) else set()
        return [
            each.read(
                segment=number in whole,
                compared=number in whole and each.is_compared(whole[number]),
                snapshot=number in members,
                index=number in indexes,
            )
            for number, each in enumerate(self._readable)
            if number in whole or number in members
        ]

    def _reads_of(self, window: Window) -> list[CopyRead]:
        directory = window.source.directory
        segments = {segment.log.name: segment.has_checked_indexes for segment in directory.segments[window.first_index :]}
        snapshots = {listed.name for _, listed in directory.snapshots}
        found = []
        for each in self._readable:
            snapshot = each.snapshot()
            has_snapshot = snapshot is not None and snapshot.name in snapshots
            is_read = each.log_name in segments
            found.append(each.read(segment=is_read, compared=segments.get(each.log_name, False), snapshot=has_snapshot))
        return [each for each in found if each.parts]

    # ------------------------------------------------------------------------------------------------------------ structure

    def read_snapshots(self, clock: Clock) -> None:
        """Looks at the snapshots by themselves, and at each beside the last ones that are not suspect."""
        left = {id(self._readable[number]) for number in self._line.left}
        due = sorted((each for each in self._readable if each.facts.snapshot_bytes), key=_in_order)
        trusted: deque[tuple[Neighbour, AuditedCopy]] = deque(maxlen=2)
        for each, entries in zip(due, at_once(self._entries, due, _snapshot_bytes), strict=True):
            if isinstance(entries, str):
                each.audited.verdict, each.audited.why = Verdict.CORRUPT, entries
                continue
            if isinstance(entries, ReadFailedError):
                each.audited.not_read(entries.message)
                self._audit.findings.append(replace(finding_of_error(entries, self._place), offset=each.copy.base_offset))
                continue
            each.audited.verdict, each.audited.entries = Verdict.UNPROVEN, len(entries)
            each.audited.why = "it parses; no segment was replayed"
            if id(each) in left or each.end_offset is None:
                continue
            now = Neighbour(each.end_offset + 1, entries, each.max_timestamp_ms)
            while trusted and (found := suspicion(trusted[-1][0], now, clock)) is not None:
                suspect = trusted.pop()[1] if found.is_earlier else each.audited
                suspect.verdict, suspect.why = Verdict.SUSPECT, found.why
                if suspect is each.audited:
                    break
            if each.audited.verdict is not Verdict.SUSPECT:
                trusted.append((now, each.audited))

    def _entries(self, copy: ReadableCopy) -> np.ndarray | str | ReadFailedError:
        """Entries of a snapshot, why it is none, or why this one cannot be read.

        Raises:
            ReadFailedError: the store as a whole does not answer.
            RefusedError: a limit of the run is used up, or the private key is another one.
        """
        path = f"{self._audit.root}/{copy.file_name(LocalTierFile.PRODUCER_SNAPSHOT)}"
        if (size := copy.facts.snapshot_bytes or 0) > limits.SNAPSHOT_BYTES_MAX + ENCRYPTION_BYTES:
            return f"{path}: snapshot: expected at most {limits.SNAPSHOT_BYTES_MAX} bytes, found {size}"
        try:
            data = self._store.read_small(path, limits.SNAPSHOT_BYTES_MAX)
            if data is None:
                return ReadFailedError("was deleted since it was listed", path=path, errno=errno.ENOENT)
            entries = read_entries(data, file=path)
        except FormatError as error:
            return str(error)
        except ReadFailedError as error:
            if error.errno is None:
                raise
            return error
        at = INT64_MAX if copy.end_offset is None else copy.end_offset + 1
        return impossible_entries(entries, at) or entries

    # ------------------------------------------------------------------------------------------------------------ verdicts

    def take(self, verdict: PartitionVerdict) -> None:
        """Takes what the replay says."""
        self.audited.bytes_read = verdict.outcome.bytes_read
        for each in verdict.findings:
            if each.severity > Severity.FINDING and each.code != BAD_COPY:  # a segment next to a bad index proves what it holds
                self.audited.damaged(each.offset)
            if each.code in _TOLD:
                is_object = each.path != self._audit.root
                path, text = (each.path, f"{self.audited.name}: {each.message}") if is_object else (self._place, each.message)
                self._audit.findings.append(replace(each, path=path, message=text))
        for snapshot in verdict.snapshots:
            audited = self._by_name.get(snapshot.name)
            if audited is not None:
                audited.take(snapshot.comparison)
                if audited.verdict is Verdict.RIGHT:
                    self._check_proven(audited, snapshot)
                audited.unproven = "the copies do not begin at offset 0" if self.audited.replayed_from else audited.unproven

    def _check_proven(self, audited: AuditedCopy, snapshot: SnapshotVerdict) -> None:
        """An equal snapshot is not right where the replay does not prove it."""
        lost = self._gap_below(snapshot.offset)
        if lost is not None:
            audited.verdict = Verdict.UNPROVEN
            audited.why = f"{audited.why}, and the copy of offsets {lost.start_offset} to {lost.end_offset} is lost"
        elif snapshot.snapshot_class in (SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN):
            audited.verdict = Verdict.UNPROVEN
            audited.why = f"{audited.why}, and the replay is {snapshot.snapshot_class.value}: it proves nothing here"

    def keep_proven(self, state: BoundaryState, listed: ListedFile | None, comparison: Comparison | None) -> None:
        """Keeps the right snapshot of a boundary whose own is wrong, if what was replayed proves it."""
        audited = self._by_end.get(state.offset) if listed is None else self._by_name.get(listed.name)
        if audited is None or self._keep is None or not (comparison is None or comparison.proven_wrong):
            return
        if state.is_cut and state.segment.cut_batch_offset is not None:
            return  # the last copy below a gap ends with a batch, too, and its state is known
        judgement = state.judgement
        if judgement.snapshot_class is not SnapshotClass.EXACT:
            # What was deleted before the first copy may live on in a later snapshot alone.
            audited.unproven = f"the replay is {judgement.snapshot_class.value}: {judgement.reasons[0]}"
        elif state.segment.tail.kind is not TailKind.CLEAN:
            audited.unproven = f"its segment ends with what is no batch: {state.segment.tail.error}"
        elif (impossible := impossible_entries(state.entries, state.offset)) is not None:
            audited.unproven = f"the replay gives what no broker writes: {impossible}"
        else:
            audited.proven = self._keep.add(judgement.snapshot_class.value, write_entries(state.entries))

    def tell(self) -> None:
        """The findings of the partition."""
        say = self._audit.findings.append
        for audited in self.audited.copies:
            name = f"the snapshot of the segment {uuid_to_text(audited.segment_id)}"
            if audited.verdict is Verdict.SUSPECT:
                message = f"{name} is suspect: {audited.why}; --level full proves what it is"
                say(Finding("tier-suspect-snapshot", Severity.FINDING, self._place, message, audited.start_offset))
            if audited.verdict in WRONG:
                severity = Severity.DAMAGED if audited.verdict is Verdict.CORRUPT else Severity.FINDING
                message = f"{name} is {audited.verdict}: {audited.why}"
                if audited.differences:
                    first, more = audited.differences[0], audited.difference_count - 1
                    message += f". A follower that starts from it, of producer {first.producer_id}: {first.consequence}"
                    message += f"; and {pluralize(more, 'producer')} more" if more else ""
                say(Finding("tier-wrong-snapshot", severity, self._place, message, audited.start_offset, audited.verdict.value))
        for fault, copies in self._undecrypted.items():
            message = (
                f"{pluralize(len(copies), 'copy', 'copies')} not read; the first, {uuid_to_text(copies[0].segment_id)}, {fault}"
            )
            say(Finding("refused", Severity.REFUSED, self._place, message, copies[0].base_offset, is_unread=True))
        self._audit.findings += unknown_objects(self._place, UnknownObjects(), self._iceberg)
        if unknown := [each for each in self.audited.copies if each.verdict is Verdict.REACH_UNKNOWN]:
            message = (
                f"{pluralize(len(unknown), 'snapshot')} not judged, because the first offset on the leader's disk is unknown: "
            )
            message += f"add --local-log-start {self.audited.name}=OFFSET or --log-dir DIR, or use --level full"
            say(Finding("tier-reach-unknown", Severity.NOTE, self._place, message, unknown[0].start_offset))
        unread = [each for each in self.audited.copies if each.verdict is Verdict.NOT_READ]
        if self._audit.level is not AuditLevel.STRUCTURE and unread:
            message = (
                f"{pluralize(len(unread), 'snapshot')} not read; the first: {unread[0].why or 'the replay did not come to it'}"
            )
            say(Finding("tier-not-audited", Severity.FINDING, self._place, message, unread[0].start_offset))


def _in_order(copy: ReadableCopy) -> tuple[int, int]:
    return copy.copy.base_offset if copy.end_offset is None else copy.end_offset, copy.copy.base_offset


def _snapshot_bytes(copy: ReadableCopy) -> int:
    return copy.facts.snapshot_bytes or 0


_TOLD = frozenset(
    (
        *("damaged-segment", "damaged-file", "refused", "storage-failed", "unforeseen-error", "bad-checksum", "unsound-boundary"),
        *(BAD_COPY, "transaction-index-differs", "unreadable-transaction-index", "disordered-offsets", "snapshot-above-log-end"),
    )
)
"""What ``verify`` finds that concerns the objects, and not a broker's directory."""
