"""The documents of ``cluster check``, ``cluster advise``, ``cluster isr`` and ``cluster source``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.cluster.metadata.isr_check import IsrEvent, IsrFault
from snaprebuild.cluster.metadata.unknown_contents import UnknownContents
from snaprebuild.cluster.quorum.advise import NextCheckpoint, PolicyAdvice
from snaprebuild.cluster.quorum.election import QuorumFacts
from snaprebuild.cluster.quorum.log_facts import LogStart
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch, Progress
from snaprebuild.cluster.quorum.rules import QuorumRule, QuorumRuleState
from snaprebuild.cluster.rule_result import Grade
from snaprebuild.cluster.source_check.rules import SourceRule, SourceRuleState
from snaprebuild.cluster.source_check.source_question import SourceTerms
from snaprebuild.published import Document, Natural, Part, Positive, Streamed, one_of
from snaprebuild.snapshots.plan.source_verdict import RuleNumber, VerdictSummary
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "CheckedNode",
    "ClusterAdvise",
    "ClusterCheck",
    "ClusterIsr",
    "ClusterSource",
    "ClusterSourceReplica",
    "MetadataLogUsed",
    "NodeCheckpoint",
    "NodeRuleResult",
    "ReplicaRuleResult",
]


# --------------------------------------------------------------------------------------------------------------- cluster check


class NodeCheckpoint(Part, frozen=True):
    """A checkpoint."""

    offset: Natural
    """Exclusive end."""
    epoch: Natural
    size_bytes: Natural
    timestamp_ms: int | None
    """Timestamp of the last record that it contains, from its header."""
    fault: str | None
    """Why it is not whole."""


class NodeRuleResult(Part, frozen=True):
    """The result of a rule."""

    rule: Annotated[str, one_of(*QuorumRule.__members__)]
    text: str
    """The statement that is true if the rule is met."""
    state: Annotated[str, one_of(*QuorumRuleState)]
    """not-judged: what the rule needs is missing, or another rule reports the reason. not-applicable: it has nothing to judge."""
    grade: Grade | None
    """Grade of the violation; null if there is none."""
    evidence: str
    """One sentence; not stable."""
    path: str
    """File or directory concerned."""
    offset: Natural | None
    """Offset concerned."""


class CheckedNode(Part, frozen=True):
    """One directory."""

    path: str
    """Directory of the metadata log."""
    node_id: Natural | None
    """From meta.properties; null if there is none."""
    cluster_id: str | None
    """From meta.properties; null if there is none."""
    is_leader: bool | None
    """Whether it is the leader among the given directories; null if that is not known."""
    first_base_offset: Natural | None
    """Base offset of the first segment; null without segments."""
    start: LogStart
    end_offset: Natural
    """Offset after the last batch."""
    checkpoints: Sequence[NodeCheckpoint]
    """Ascending by id."""
    rules: Sequence[NodeRuleResult]
    """The rules; one that is violated several times is listed as often."""
    unknown_contents: UnknownContents | None = None
    """Contents of the log that this version does not know; null for nothing."""


class ClusterCheck(QuorumFacts, Document, frozen=True):
    """The JSON document of `snaprebuild cluster check`."""

    NAME = "cluster-check"
    VERSION = 3

    nodes: Sequence[CheckedNode]
    """One for each directory."""


# -------------------------------------------------------------------------------------------------------------- cluster advise


class ClusterAdvise(Document, frozen=True):
    """The JSON document of `snaprebuild cluster advise`."""

    NAME = "cluster-advise"
    VERSION = 3

    path: str
    """Directory of the metadata log."""
    node_id: Natural | None
    """From meta.properties; null if there is none."""
    is_leader: bool
    """Whether it is the leader of its quorum, as far as is known."""
    as_of_ms: Natural
    """Time of the advice."""
    retention_bytes: Annotated[int, msgspec.Meta(ge=-1)]
    """Negative for none."""
    retention_ms: Annotated[int, msgspec.Meta(ge=-1)]
    """Negative for none."""
    lag_time_max_ms: Natural
    checkpoint_interval_ms: Natural
    """A checkpoint is taken at least once in this time; 0 for not by time."""
    checkpoint_record_bytes: Positive
    """A checkpoint is taken each time the log has grown by this many bytes of records."""
    next_checkpoint: NextCheckpoint
    first_base_offset: Natural | None
    """Base offset of the first segment; null without segments."""
    start: LogStart
    end_offset: Natural
    """Offset after the last batch."""
    size_bytes: Natural
    """Bytes of segments and checkpoints."""
    replicas: Sequence[Progress]
    """Replicas that are known to fetch from it."""
    unknown_replicas: Sequence[int] | None
    """Ids of voters and brokers without a known offset; null if no image can be read."""
    listeners: Sequence[Progress]
    leader_start: OffsetAndEpoch | None
    """Start of the leader's log; null if it is not known, or this is the leader."""
    policies: Sequence[PolicyAdvice]
    assumptions: Sequence[str]
    """One sentence each."""
    unknown_contents: UnknownContents | None = None
    """Contents of the log that this version does not know; null for nothing."""


# ----------------------------------------------------------------------------------------------------------------- cluster isr


class ClusterIsr(Document, frozen=True):
    """The JSON document of `snaprebuild cluster isr`."""

    NAME = "cluster-isr"
    VERSION = 3

    path: str
    """The metadata log directory."""
    first_offset: Natural
    """First offset that was read; earlier history is not known."""
    checkpoint_path: str | None
    """Path of the checkpoint at the start of the history; null for the beginning of the log."""
    end_offset: Natural
    """Offset after the last one."""
    proven_end_offset: Natural
    """After the last offset that is proven to be committed, 0 if none is."""
    isr_changes: Natural
    """Changes of in-sync replicas."""
    joins: Natural
    """Replicas that joined."""
    totals: dict[IsrFault, Positive]
    """Events by fault."""
    events: Streamed[IsrEvent]
    """The first 10,000, by offset."""
    unknown_contents: UnknownContents | None = None
    """Contents of the log that this version does not know; null for nothing."""


# -------------------------------------------------------------------------------------------------------------- cluster source


class ReplicaRuleResult(Part, frozen=True):
    """The result of one rule."""

    rule: RuleNumber
    name: SourceRule
    state: Annotated[str, one_of(*SourceRuleState)]
    evidence: str
    """The facts, one sentence; not stable."""
    trusted_below: Natural | None
    """Limit of the offset by this rule alone; null if it limits nothing."""


class MetadataLogUsed(Part, frozen=True):
    """The metadata log that the rules compare with."""

    path: str
    is_own: bool
    """Found in the log directories of the broker; otherwise it was named by an option."""
    offset: Natural
    """Last offset that was used."""
    proven_below: Natural
    """Records below it are known to be committed."""
    proof_text: str
    unknown_contents: UnknownContents | None = None
    """Contents of the log that this version does not know; null for nothing."""


class ClusterSourceReplica(TopicPartition, frozen=True):
    """A replica with its verdict."""

    path: str
    """Path of the partition directory."""
    node_id: Natural | None
    """From meta.properties; null if that does not have it."""
    cluster_id: str | None
    """From meta.properties; null if that does not have it."""
    directory_id: str | None
    """From meta.properties; null if that does not have it."""
    topic_id: str | None
    """From partition.metadata."""
    log_end_offset: Natural | None
    """End of the last whole batch; null if it cannot be read, or there is no segment."""
    high_watermark: Natural | None
    """From the checkpoint file."""
    last_stable_offset: Natural | None
    """From a replay of the log; null for a rebuild, which does not need it."""
    metadata_log: MetadataLogUsed | None
    """Null for none."""
    metadata_log_missing: str | None
    """Why no metadata log was used."""
    verdict: VerdictSummary
    verdict_text: Annotated[
        str, msgspec.Meta(pattern=r"^(TRUSTED|TRUSTED_BELOW\([0-9]+\)|UNKNOWN\(R[0-9]+\)|REJECTED\(R[0-9]+\))$")
    ]
    """The result, with the offset or the rule."""
    rules: Annotated[Sequence[ReplicaRuleResult], msgspec.Meta(min_length=13, max_length=13)]


class ClusterSource(SourceTerms, Document, frozen=True, kw_only=True):
    """The JSON document of `snaprebuild cluster source`."""

    NAME = "cluster-source"
    VERSION = 3

    replicas: Sequence[ClusterSourceReplica]
