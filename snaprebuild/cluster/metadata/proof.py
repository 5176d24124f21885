"""How much of a metadata log is proven to be committed: by checkpoints, and by the logs of other voters.

No file has the high watermark, and every replica holds records that are not committed yet. Two things prove a record:

* A checkpoint that holds it: checkpoints are made of committed records alone.
* A majority of the voters holds it with the same leader epoch. In Raft this alone is not enough. A record of an old epoch may be on a
  majority, and a leader of a later epoch that was elected before may still remove it. Therefore one of two conditions must hold as well.
  Either no voter of the majority knows of an epoch later than that of the last record they share. Or the logs of all voters are known,
  and none that lacks that record ends with a later epoch. A voter that has the record and ends with a later epoch keeps it, whatever
  election it wins.

Two logs that hold the same epoch at the same offset are equal up to there (KIP-595).

Source: ``LeaderState.updateHighWatermark`` and ``KafkaRaftClient`` of Kafka 4.3.1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import QuorumView
from snaprebuild.cluster.metadata.log import MetadataLog, meta_around, open_metadata_log
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.published import Part

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "CommitProof",
    "EpochLineage",
    "LogHeaders",
    "MajorityProof",
    "UncountedLog",
    "VoterLog",
    "VotersSource",
    "common_end",
    "majority_proof",
    "proof_findings",
    "prove",
    "read_headers",
    "read_owner",
    "unproven_reason",
]


@dataclass(frozen=True, slots=True)
class EpochLineage:
    """The leader epoch of each offset of a log.

    Attributes:
        starts: epoch, and its first offset in the log; both ascending.
        end_offset: of the log.
    """

    starts: tuple[tuple[int, int], ...]
    end_offset: int

    def ranges(self) -> list[tuple[int, int, int]]:
        """Epoch, first offset, and the one after its last."""
        following = [start for _, start in self.starts[1:]]
        return [(epoch, start, end) for (epoch, start), end in zip(self.starts, [*following, self.end_offset], strict=False)]

    def epoch_of(self, offset: int) -> int | None:
        """Epoch of an offset, None if the log does not hold it."""
        return next((epoch for epoch, start, end in self.ranges() if start <= offset < end), None)

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; -1 for an empty log."""
        return self.starts[-1][0] if self.starts else -1


@dataclass(frozen=True, slots=True)
class VoterLog:
    """The log of a voter.

    Attributes:
        node_id: of the voter.
        lineage: of its log.
        known_epoch: latest epoch that it knows of (``quorum-state``); None if that is unknown.
    """

    node_id: int
    lineage: EpochLineage
    known_epoch: int | None


@dataclass(frozen=True, slots=True)
class MajorityProof:
    """The part of a log that the logs of voters prove.

    Attributes:
        end_offset: after the last offset that is proven to be committed; None if nothing is proven.
        shared_end: after the last offset that a majority shares, proven or not; None without a majority.
        reason: one sentence.
        common_ends: of each voter, after the last offset that it shares with the log; None if it shares none that both hold.
    """

    end_offset: int | None
    shared_end: int | None
    reason: str
    common_ends: tuple[tuple[int, int | None], ...]


def common_end(one: EpochLineage, other: EpochLineage) -> int | None:
    """Offset after the last one that two logs hold with the same epoch; None if there is none."""
    ends = [
        min(end, other_end)
        for epoch, start, end in one.ranges()
        for other_epoch, other_start, other_end in other.ranges()
        if epoch == other_epoch and max(start, other_start) < min(end, other_end)
    ]
    return max(ends, default=None)


def majority_proof(log: EpochLineage, voters: frozenset[int], logs: Sequence[VoterLog]) -> MajorityProof:
    """The part of a log that a majority of the voters proves.

    Args:
        log: in question.
        voters: ids of all of them.
        logs: of some voters, each once; that of the log in question among them, if it is one of a voter.
    """
    ends = {each.node_id: common_end(log, each.lineage) for each in logs if each.node_id in voters}
    common_ends = tuple(sorted(ends.items()))
    needed = len(voters) // 2 + 1
    shared = sorted(((end, node_id) for node_id, end in ends.items() if end is not None), reverse=True)
    if len(shared) < needed:
        few = f"{len(shared)} of {len(voters)} voters are known to share records with it, a majority are {needed}"
        return MajorityProof(None, None, few, common_ends)
    end = shared[needed - 1][0]
    epoch = log.epoch_of(end - 1)
    assert epoch is not None
    majority = {node_id for at, node_id in shared if at >= end}
    by_id = {each.node_id: each for each in logs if each.node_id in voters}
    detail = f"{len(majority)} of {len(voters)} voters hold everything up to offset {end - 1}, of leader epoch {epoch}"
    known_epochs = [by_id[node_id].known_epoch for node_id in majority]
    later = [each for each in known_epochs if each is not None and each > epoch]
    if not later and None not in known_epochs:
        return MajorityProof(end, end, f"{detail}, and none of them knows of a later one", common_ends)
    reason = f"knows of epoch {max(later)}" if later else "may know of a later one: its quorum-state is not known"
    if by_id.keys() >= voters:
        ahead = [each.node_id for each in by_id.values() if each.lineage.last_epoch > epoch and (ends[each.node_id] or 0) < end]
        if not ahead:
            return MajorityProof(end, end, f"{detail}, and no voter without it ends with a later one", common_ends)
        lost = f"{detail}, but voter {ahead[0]} ends with a later one, lacks that record, and might win an election"
        return MajorityProof(None, end, lost, common_ends)
    return MajorityProof(None, end, f"{detail}, but one {reason}, and not all voters' logs are given", common_ends)


class UncountedLog(Part, frozen=True):
    """A log of a voter that proves nothing."""

    path: str
    reason: str


class VotersSource(StrEnum):
    """The source of the set of voters."""

    OPTION = "option"
    RECORDS = "records"
    QUORUM_STATE = "quorum-state"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class CommitProof:
    """The part of a log that is proven to be committed.

    Attributes:
        proven_end_offset: after the last offset that is proven to be committed, 0 where none is.
        checkpoint_end_offset: after the last one that a whole checkpoint holds, 0 where there is none.
        majority: what the logs of voters prove, None if no file names the voters.
        voters: ids of all voters.
        voters_source: the file or option that names the voters.
        lineage: leader epochs of the log, as far as it can be read.
        damage: of the logs that were read, each up to there.
        not_counted: logs that were given and are not those of a voter.
    """

    proven_end_offset: int
    checkpoint_end_offset: int
    majority: MajorityProof | None
    voters: tuple[int, ...]
    voters_source: VotersSource
    lineage: EpochLineage
    damage: tuple[FormatError, ...]
    not_counted: tuple[UncountedLog, ...]

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record of the log that can be read."""
        return self.lineage.end_offset


@dataclass(frozen=True, slots=True)
class LogHeaders:
    """Facts from the headers and control batches of a log.

    Attributes:
        lineage: its leader epochs.
        quorum: what its control records, and those of its newest whole checkpoint, say.
        checkpoint_end: after the last offset of that checkpoint, 0 where there is none.
        damage: where the log cannot be read any further, or None.
    """

    lineage: EpochLineage
    quorum: QuorumView
    checkpoint_end: int
    damage: FormatError | None


def read_headers(log: MetadataLog) -> LogHeaders:
    """Reads the headers and the control records of a whole log.

    Raises:
        ReadFailedError: a file cannot be read.
    """
    fold = ImageFold()
    checkpoint = log.newest_valid_checkpoint()
    if checkpoint is not None:
        try:
            fold.apply_checkpoint(log.checkpoint_batches(checkpoint, records=False), checkpoint.end_offset, checkpoint.epoch)
        except FormatError as error:  # it was whole a moment ago
            raise ReadFailedError(f"changed while it was read: {error.message}", path=checkpoint.path) from error
    starts: list[tuple[int, int]] = []
    walk = log.walk(records=False)
    damage = None
    try:
        for batch in walk:
            if not starts or starts[-1][0] != batch.leader_epoch:
                starts.append((batch.leader_epoch, batch.base_offset))
            fold.apply_batch(batch)
    except FormatError as error:
        damage = error
    lineage = EpochLineage(tuple(starts), walk.end_offset)
    return LogHeaders(lineage, fold.quorum, 0 if checkpoint is None else checkpoint.end_offset, damage)


def read_owner(log: MetadataLog) -> MetaProperties | None:
    """``meta.properties`` next to the directory: whose log it is. None if there is none, or none that can be read.

    A copy of another name may lie anywhere, also in the log directory of another node.

    Raises:
        ReadFailedError: it is there and cannot be read.
    """
    try:
        return meta_around(log.directory) if os.path.basename(log.path) == METADATA_DIRECTORY else None
    except FormatError:
        return None


def prove(
    log: MetadataLog,
    others: Iterable[tuple[int | None, str]] = (),
    voter_ids: Sequence[int] | None = None,
    run: Run | None = None,
) -> CommitProof:
    """Finds what proves the records of a log to be committed.

    Args:
        log: in question.
        others: logs of other voters: id, or None for that of ``meta.properties``, and location.
        voter_ids: all voters; None for what the records say, else ``quorum-state``.
        run: as for ``open_metadata_log``.

    Raises:
        UsageError: a location holds no metadata log, two logs are of one voter, or one is of another cluster.
        ReadFailedError: a file cannot be read.
    """
    headers = read_headers(log)
    logs: list[tuple[int | None, MetadataLog, LogHeaders]] = [(None, log, headers)]
    for node_id, location in others:
        other = open_metadata_log(location, run)
        logs.append((node_id, other, read_headers(other)))
    voters, voters_source = _voters(log, headers.quorum, voter_ids)
    counted, not_counted = _counted(logs, voters, headers.quorum)
    majority = majority_proof(headers.lineage, frozenset(voters), counted) if voters else None
    proven = max(headers.checkpoint_end, (majority.end_offset or 0) if majority is not None else 0)
    damage = tuple(each.damage for _, _, each in logs if each.damage is not None)
    return CommitProof(
        proven_end_offset=proven,
        checkpoint_end_offset=headers.checkpoint_end,
        majority=majority,
        voters=voters,
        voters_source=voters_source,
        lineage=headers.lineage,
        damage=damage,
        not_counted=tuple(not_counted),
    )


def _counted(
    logs: Sequence[tuple[int | None, MetadataLog, LogHeaders]], voters: tuple[int, ...], quorum: QuorumView
) -> tuple[list[VoterLog], list[UncountedLog]]:
    """The logs of voters, and the others with the reason why they are not counted."""
    counted: dict[int, VoterLog] = {}
    places: dict[int, str] = {}
    not_counted = []
    first = logs[0][1]
    own = read_owner(first)
    for given, log, headers in logs:
        owner = read_owner(log)
        if owner is not None and own is not None and owner.cluster_id != own.cluster_id:
            raise UsageError(f"is of cluster {owner.cluster_id}, and {first.path} of {own.cluster_id}", path=log.path)
        node_id = given
        if node_id is None and owner is not None:
            node_id = owner.node_id
        reason = _reason_not_to_count(node_id, owner, voters, quorum)
        if reason is not None:
            not_counted.append(UncountedLog(log.path, reason))
            continue
        assert node_id is not None
        if node_id in counted:
            raise UsageError(f"is of voter {node_id}, like {places[node_id]}: one log of each is looked at", path=log.path)
        state = log.quorum_state
        counted[node_id] = VoterLog(node_id, headers.lineage, None if state is None else state.leader_epoch)
        places[node_id] = log.path
    return list(counted.values()), not_counted


def _voters(log: MetadataLog, quorum: QuorumView, voter_ids: Sequence[int] | None) -> tuple[tuple[int, ...], VotersSource]:
    """Ids of all voters, ascending, and the source that names them."""
    if voter_ids is not None:
        return tuple(sorted(set(voter_ids))), VotersSource.OPTION
    if quorum.voters is not None:
        return tuple(sorted({voter.voter_id for voter in quorum.voters})), VotersSource.RECORDS
    if log.quorum_state is not None and log.quorum_state.voters:
        return tuple(sorted(set(log.quorum_state.voters))), VotersSource.QUORUM_STATE
    return (), VotersSource.NOTHING


def _reason_not_to_count(
    node_id: int | None, owner: MetaProperties | None, voters: tuple[int, ...], quorum: QuorumView
) -> str | None:
    """Why a log is not that of a voter; None for the log of a voter."""
    if node_id is None:
        return "its owner is unknown: there is no meta.properties next to it"
    if node_id not in voters:
        return f"node {node_id} is not a voter"
    directory_id = None if quorum.kraft_version == 0 or owner is None else owner.directory_id
    voting_directory = next((voter.directory_id for voter in quorum.voters or () if voter.voter_id == node_id), None)
    if None not in (voting_directory, directory_id) and voting_directory != directory_id:
        return f"the directory is not the one that voter {node_id} votes with: its disk was replaced"
    return None


def proof_findings(log: MetadataLog, proof: CommitProof, last_offset: int, *, reported: Iterable[Finding]) -> list[Finding]:
    """Findings of a proof: damage of the logs that it read, the part that is not proven, and logs that do not count.

    Args:
        log: in question.
        proof: of it.
        last_offset: that was taken.
        reported: findings so far; the same damage is not reported twice.
    """
    reported_damage = {(each.code, each.path, each.message) for each in reported}
    damage = [finding_of_error(error, log.path) for error in proof.damage]
    findings = [each for each in damage if (each.code, each.path, each.message) not in reported_damage]
    if last_offset >= proof.proven_end_offset:
        message = f"offsets {proof.proven_end_offset} to {last_offset} are not proven to be committed: {unproven_reason(proof)}"
        findings.append(Finding("unproven-tail", Severity.NOTE, log.path, message, proof.proven_end_offset))
    return findings + [Finding("voter-not-counted", Severity.NOTE, each.path, each.reason) for each in proof.not_counted]


def unproven_reason(proof: CommitProof) -> str:
    """Why nothing after what is proven is proven."""
    if proof.majority is None:
        return "nothing says who the voters are" if not proof.voters else "no log of a voter is known"
    return proof.majority.reason
