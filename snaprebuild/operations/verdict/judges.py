"""Verdicts on partitions of a run: each with its broker's metadata log, and the notes that go with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from formats.broker_files import Properties
from formats.errors import FormatError
from snaprebuild.cluster.source_evidence import ClusterEvidence, LogEvidence, PeerEvidence, Purpose, SourceEvidence
from snaprebuild.cluster.source_verdict import Outcome, Rule, SourceVerdict, judge
from snaprebuild.errors import DeadlinePassedError, SnaprebuildError
from snaprebuild.operations.broker_properties import log_dirs_of, metadata_dir_of
from snaprebuild.operations.findings import Finding, Severity, finding_of_error
from snaprebuild.operations.verdict.cluster_truth import ClusterTruth, MetadataRead
from snaprebuild.operations.verdict.evidence import brokers_of, log_dir_evidence, log_evidence
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import is_object

__all__ = ["Judges", "KnownSource", "is_judged", "named_only", "rejection", "verdict_json", "word_needed"]


@dataclass(frozen=True, slots=True)
class KnownSource:
    """Everything but the log itself, as a value that can be sent to another process.

    Attributes:
        evidence: with a log of which only names are known.
    """

    evidence: SourceEvidence

    def judge(self) -> SourceVerdict:
        """The verdict, where the log was read before."""
        return judge(self.evidence)

    def judged(self, directory: PartitionDir, state: LogDirState, log_end: int | None) -> SourceVerdict:
        """The verdict, once the end of the log was read."""
        return judge(replace(self.evidence, log=log_evidence(directory, state, log_end=log_end)))


@dataclass(slots=True)
class Judges:
    """Who judges the partitions of a run.

    Attributes:
        purpose: of all verdicts.
        truth: the metadata logs.
        broker_epoch: of a live broker, as the operator says.
        is_leader_by_word: likewise, that its replicas lead.
        asks_locks: whether brokers hold the log directories; else all are taken for stopped.
        findings: what could not be asked; each once.
    """

    purpose: Purpose
    truth: ClusterTruth
    broker_epoch: int | None = None
    is_leader_by_word: bool = False
    asks_locks: bool = True
    findings: list[Finding] = field(default_factory=list)
    _siblings: dict[str, tuple[LogDirState, ...]] = field(default_factory=dict)
    _metadata_dirs: dict[str, str] = field(default_factory=dict)

    def meet(self, states: Sequence[LogDirState], named: Sequence[str] = (), properties: Properties | None = None) -> None:
        """Takes note of the log directories of the run, and which of them are of one broker (``brokers_of``).

        Args:
            states: of the run.
            named: paths that were named.
            properties: of the broker to which some of them belong: its ``log.dirs``, and ``metadata.log.dir``, which need be none of them.
        """
        log_dirs = _real([] if properties is None else log_dirs_of(properties))
        self._siblings |= brokers_of(states, log_dirs, _real(named))
        metadata_dir = None if properties is None else metadata_dir_of(properties)
        if metadata_dir is not None and os.path.realpath(metadata_dir) not in log_dirs:
            self._metadata_dirs |= dict.fromkeys(log_dirs, metadata_dir)

    def metadata_of(self, state: LogDirState) -> MetadataRead | str:
        """The metadata log that tells of a log directory, or why there is none."""
        elsewhere = self._metadata_dirs.get(state.path)
        read = self.truth.of((state, *self._siblings.get(state.path, ())), elsewhere)
        if isinstance(read, MetadataRead) and read.is_own and elsewhere is not None and os.path.dirname(read.path) == elsewhere:
            message = "the metadata log of metadata.log.dir tells of the replicas in the broker's log.dirs"
            self._tell(Finding("source-metadata-dir", Severity.NOTE, read.path, message))
        return read

    def _tell(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    def know(self, state: LogDirState, log: LogEvidence, peers: tuple[PeerEvidence, ...] = ()) -> KnownSource:
        """What is known of a partition beside its log.

        Args:
            state: the small files of its log directory.
            log: what its own files say; ``named_only`` where they are read later.
            peers: other replicas.
        """
        own = log_dir_evidence(state, self._siblings.get(state.path, ()), self.broker_epoch, asks_lock=self.asks_locks)
        read = self.metadata_of(state)
        cluster: ClusterEvidence | None = None
        missing = read if isinstance(read, str) else ""
        if isinstance(read, MetadataRead):
            try:
                cluster = read.evidence(log, own.node_id, own.directory_id)
            except DeadlinePassedError:
                raise
            except (SnaprebuildError, FormatError) as error:
                missing = f"the history of the metadata log cannot be read: {error}"
                self._tell(finding_of_error(error, read.path))
        return KnownSource(SourceEvidence(self.purpose, log, own, cluster, missing, peers, self.is_leader_by_word))


def _real(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(each if is_object(each) else os.path.realpath(each) for each in paths)


def named_only(directory: PartitionDir) -> LogEvidence:
    """A partition of which nothing was read but names."""
    bases = tuple(segment.base_offset for segment in directory.segments)
    return LogEvidence(directory.path, directory.name.topic, directory.name.partition, directory.name.form, bases=bases)


def is_judged(directory: PartitionDir) -> bool:
    """The metadata log is no topic of the cluster: its verbs judge it (``kraft check``)."""
    return directory.name.topic != "__cluster_metadata"


def rejection(verdict: SourceVerdict, path: str) -> Finding:
    """The finding of a source that was refused."""
    assert verdict.rule is not None
    message = f"no source for {_A[verdict.purpose]}, {verdict}: {verdict.why} (rule {verdict.rule.name}, {verdict.rule.value})"
    return Finding("source-rejected", Severity.REFUSED, path, message, reason=verdict.rule.value)


def word_needed(verdict: SourceVerdict, path: str, severity: Severity) -> Finding | None:
    """The finding of a replica of which nothing tells that it leads or is in sync; None where something does, or the operator."""
    if verdict.is_rejected or not verdict.needs_word:
        return None
    rules = ", ".join(rule.name for rule in verdict.needs_word)
    message = (
        f"{_A[verdict.purpose]} would rest on the operator's word that this replica leads: {rules} are not known "
        f"({verdict.evidence_of(Rule.R7)}). --metadata DIR names a metadata log that tells; where none can, --i-am-the-leader says it"
    )
    return Finding("source-word-needed", severity, path, message)


_A = {Purpose.REBUILD: "a rebuild in place", Purpose.UPLOAD: "an upload", Purpose.BOOTSTRAP: "another replica"}


def verdict_json(verdict: SourceVerdict | None) -> dict[str, object] | None:
    """A verdict as plain values, without its rules; None where none was asked for."""
    if verdict is None:
        return None
    return {
        "purpose": verdict.purpose.value,
        "outcome": verdict.outcome.value,
        "trusted_below": verdict.offset if verdict.outcome is Outcome.TRUSTED_BELOW else None,
        "rule": None if verdict.rule is None else verdict.rule.name,
        "why": verdict.why or None,
        "not_known": [rule.name for rule in verdict.not_known],
        "on_operators_word": list(verdict.on_word),
    }
