"""May these replicas be sources? The one call of all commands that ask it: they differ only in what they read of a replica, and when.

First all replicas are read, then all are compared with the metadata logs of their brokers, then each is judged. The types of
``evidence_collector`` enforce this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from formats.errors import FormatError
from snaprebuild.cluster.source_check.evidence import LogEvidence, SourceEvidence
from snaprebuild.cluster.source_check.evidence_collector import (
    ComparedReplicas,
    EvidenceCollector,
    RegisteredBrokers,
    SourceRequest,
)
from snaprebuild.cluster.source_check.metadata_logs import BrokerMetadata
from snaprebuild.cluster.source_check.verdict import SourceVerdict, judge
from snaprebuild.errors import DeadlinePassedError, SnaprebuildError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.engine.log_facts import check_deadline
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["JudgedReplica", "ReadLogs", "SourceReplica", "SourceVerdicts", "judge_sources", "replica_of"]


class SourceReplica(msgspec.Struct, frozen=True):
    """A replica as a source.

    Attributes:
        path: of its directory, which may be yet to be made.
        topic_partition: name of the partition.
        log_dir: the small files of its log directory.
    """

    path: str
    topic_partition: str
    log_dir: LogDirState


def replica_of(directory: PartitionDir, log_dir: LogDirState) -> SourceReplica:
    """The replica in a directory."""
    return SourceReplica(directory.path, directory.topic_partition, log_dir)


class ReadLogs(msgspec.Struct, frozen=True):
    """The parts of the replicas that are read.

    Attributes:
        read: reads one.
        read_all: reads several at once, in the order of the replicas; None for one after the other. The second value of each pair says
            whether the replica has a metadata log that may be older than it is. An error is the result of its replica.
    """

    read: Callable[[SourceReplica], LogEvidence]
    read_all: Callable[[Sequence[tuple[SourceReplica, bool]]], Iterable[LogEvidence | SnaprebuildError | FormatError]] | None = None

    def results(self, asked: Sequence[tuple[SourceReplica, bool]]) -> Iterable[LogEvidence | SnaprebuildError | FormatError]:
        """The evidence of each replica, or why it cannot be read."""
        if self.read_all is not None:
            return self.read_all(asked)
        return map(self._result, asked)

    def _result(self, asked: tuple[SourceReplica, bool]) -> LogEvidence | SnaprebuildError | FormatError:
        try:
            return self.read(asked[0])
        except (SnaprebuildError, FormatError) as error:
            return error


class JudgedReplica(msgspec.Struct, frozen=True):
    """A replica with its verdict.

    Attributes:
        replica: which.
        evidence: all that is known of it.
        metadata: the metadata log of its broker.
        verdict: on it.
    """

    replica: SourceReplica
    evidence: SourceEvidence
    metadata: BrokerMetadata
    verdict: SourceVerdict


class SourceVerdicts(msgspec.Struct):
    """The verdicts of a run.

    Attributes:
        request: what they rest on.
        logs: what is read of a replica.
        compared: the evidence, after all replicas were compared.
        judged: the replicas with a verdict, in their order.
        unread: the replicas that cannot be read, in their order, each with the reason.
        late: paths of the replicas that were not judged before the deadline of the run.
    """

    request: SourceRequest
    logs: ReadLogs
    compared: ComparedReplicas
    judged: list[JudgedReplica] = msgspec.field(default_factory=list)
    unread: list[tuple[SourceReplica, SnaprebuildError | FormatError]] = msgspec.field(default_factory=list)
    late: list[str] = msgspec.field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """About files of other replicas, and metadata logs, that cannot be read or are no evidence; more as replicas are judged."""
        return [*self.request.peers.findings, *self.compared.findings]

    def evidence_for(self, replica: SourceReplica, log: LogEvidence) -> SourceEvidence:
        """All that is known of a replica whose files were read just now: what is newer than the metadata log is seen again."""
        return self.compared.evidence_for(replica.log_dir, log, self.request.peers.of(replica.topic_partition, replica.path))

    def judge(self, replica: SourceReplica, log: LogEvidence) -> JudgedReplica:
        """The verdict on a replica whose files were read just now.

        Raises:
            DeadlinePassedError: the deadline of the run has passed.
        """
        check_deadline(self.request.logs.deadline, replica.path)
        evidence = self.evidence_for(replica, log)
        return JudgedReplica(replica, evidence, self.compared.metadata_of(replica.log_dir), judge(evidence))

    def judge_now(self, replica: SourceReplica) -> JudgedReplica:
        """Reads a replica, and judges it. All replicas were compared before.

        Raises:
            SnaprebuildError: it cannot be read.
            FormatError: it is damaged.
        """
        return self.judge(replica, self.logs.read(replica))


def judge_sources(
    request: SourceRequest, replicas: Sequence[SourceReplica], logs: ReadLogs, *, later: Sequence[SourceReplica] = ()
) -> SourceVerdicts:
    """Collects the evidence of all replicas, compares them, and judges each.

    Args:
        request: purpose, log directories, metadata logs, other replicas, and what the operator states.
        replicas: to judge now.
        logs: what is read of a replica.
        later: replicas that are only compared now, as far as they have a metadata log: each is judged with ``judge_now`` when its turn
            comes. Why one of them cannot be read is reported then.

    Raises:
        UsageError: a broker's own metadata log does not reach to the offset, or proves nothing, although that was asked for.
    """
    brokers = EvidenceCollector(request).register()
    verdicts = SourceVerdicts(request, logs, brokers.compare(()))
    read = _read(brokers, replicas, verdicts)
    try:
        verdicts.compared = brokers.compare(
            (replica.log_dir, log) for replica, log in (*read, *_read_to_compare(brokers, later, logs))
        )
    except DeadlinePassedError:
        verdicts.late += [replica.path for replica, _ in read]
        return verdicts
    for replica, log in read:
        try:
            verdicts.judged.append(verdicts.judge(replica, log))
        except DeadlinePassedError:
            verdicts.late.append(replica.path)
    return verdicts


def _read(
    brokers: RegisteredBrokers, replicas: Sequence[SourceReplica], verdicts: SourceVerdicts
) -> list[tuple[SourceReplica, LogEvidence]]:
    """The evidence of the replicas that can be read before the deadline; the others are noted in the verdicts."""
    readable = []
    for replica in replicas:
        try:
            check_deadline(verdicts.request.logs.deadline, replica.path)
            readable.append((replica, brokers.metadata_of(replica.log_dir).read is not None))
        except DeadlinePassedError:
            verdicts.late.append(replica.path)
    read = []
    for (replica, _), result in zip(readable, verdicts.logs.results(readable), strict=True):
        if isinstance(result, LogEvidence):
            read.append((replica, result))
        elif isinstance(result, DeadlinePassedError):
            verdicts.late.append(replica.path)
        else:
            verdicts.unread.append((replica, result))
    return read


def _read_to_compare(
    brokers: RegisteredBrokers, replicas: Sequence[SourceReplica], logs: ReadLogs
) -> Iterator[tuple[SourceReplica, LogEvidence]]:
    """The evidence of the replicas that have a metadata log and can be read."""
    readable = [(replica, True) for replica in replicas if brokers.metadata_of(replica.log_dir).read is not None]
    for (replica, _), result in zip(readable, logs.results(readable), strict=True):
        if isinstance(result, LogEvidence):
            yield replica, result
