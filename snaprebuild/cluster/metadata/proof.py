"""How much of a metadata log is proven to be committed: by checkpoints, and by the logs of other voters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from formats import limits
from formats.broker.broker_files import MetaProperties, read_meta_properties
from formats.errors import FormatError
from formats.partition.file_names import META_PROPERTIES
from snaprebuild.cluster.metadata.commit import EpochLineage, MajorityProof, VoterLog, majority_proof
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_model import QuorumView
from snaprebuild.cluster.metadata.listing import METADATA_DIRECTORY, open_metadata_log
from snaprebuild.cluster.metadata.log import MetadataLog
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["LogHeaders", "Proof", "VotersOrigin", "proof_findings", "prove", "read_headers", "read_owner", "unproven_reason"]


class VotersOrigin(StrEnum):
    """What says who the voters are."""

    OPTION = "option"
    RECORDS = "records"
    QUORUM_STATE = "quorum-state"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Proof:
    """What is proven of a log.

    Attributes:
        end_offset: behind the last offset that is proven to be committed, 0 where none is.
        checkpoint_end: behind the last one that a whole checkpoint holds, 0 where there is none.
        majority: what the logs of voters prove, None where nobody says who the voters are.
        voters: their ids.
        voters_origin: who says so.
        lineage: leader epochs of the log, as far as it can be read.
        damage: of the logs that were read, each up to there.
        not_counted: logs that were given and are none of a voter: where they lie, and why.
    """

    end_offset: int
    checkpoint_end: int
    majority: MajorityProof | None
    voters: tuple[int, ...]
    voters_origin: VotersOrigin
    lineage: EpochLineage
    damage: tuple[FormatError, ...]
    not_counted: tuple[tuple[str, str], ...]

    @property
    def log_end(self) -> int:
        """Behind the last record of the log that can be read."""
        return self.lineage.end_offset


@dataclass(frozen=True, slots=True)
class LogHeaders:
    """What the headers and control batches of a log say.

    Attributes:
        lineage: its leader epochs.
        quorum: what its control records, and those of its newest whole checkpoint, say.
        checkpoint_end: behind the last offset of that checkpoint, 0 where there is none.
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
    walk, damage = log.walk(records=False), None
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
    """``meta.properties`` beside the directory: whose log it is. None where there is none, or none that can be read.

    A copy of another name may lie anywhere, also in the log directory of another node.

    Raises:
        ReadFailedError: it is there and cannot be read.
    """
    if os.path.basename(log.path) != METADATA_DIRECTORY:
        return None
    path = os.path.join(os.path.dirname(log.path), META_PROPERTIES)
    data = log.store.read_small(path, limits.TEXT_FILE_BYTES_MAX)
    try:
        return None if data is None else read_meta_properties(data, file=path)
    except FormatError:
        return None


def prove(
    log: MetadataLog,
    others: Iterable[tuple[int | None, str]] = (),
    voter_ids: Sequence[int] | None = None,
    settings: S3Settings = USUAL_S3,
) -> Proof:
    """Looks at what proves a log.

    Args:
        log: in question.
        others: logs of other voters: id, or None for that of ``meta.properties``, and location.
        voter_ids: all voters; None for what the records say, else ``quorum-state``.
        settings: of object stores.

    Raises:
        UsageError: a location holds no metadata log, two logs are of one voter, or one is of another cluster.
        ReadFailedError: a file cannot be read.
    """
    headers = read_headers(log)
    logs: list[tuple[int | None, MetadataLog, LogHeaders]] = [(None, log, headers)]
    for node_id, location in others:
        other = open_metadata_log(location, settings)
        logs.append((node_id, other, read_headers(other)))
    voters, origin = _voters(log, headers.quorum, voter_ids)
    counted, not_counted = _counted(logs, voters, headers.quorum)
    majority = majority_proof(headers.lineage, frozenset(voters), counted) if voters else None
    proven = max(headers.checkpoint_end, (majority.end_offset or 0) if majority is not None else 0)
    damage = tuple(each.damage for _, _, each in logs if each.damage is not None)
    return Proof(proven, headers.checkpoint_end, majority, voters, origin, headers.lineage, damage, tuple(not_counted))


def _counted(
    logs: Sequence[tuple[int | None, MetadataLog, LogHeaders]], voters: tuple[int, ...], quorum: QuorumView
) -> tuple[list[VoterLog], list[tuple[str, str]]]:
    """The logs of voters, and the others with why they are none."""
    counted: dict[int, VoterLog] = {}
    places: dict[int, str] = {}
    not_counted = []
    first = logs[0][1]
    own = read_owner(first)
    for given, log, headers in logs:
        owner = read_owner(log)
        if owner is not None and own is not None and owner.cluster_id != own.cluster_id:
            raise UsageError(f"is of cluster {owner.cluster_id}, and {first.path} of {own.cluster_id}", path=log.path)
        node_id = given if given is not None else None if owner is None else owner.node_id
        why = _why_not_counted(node_id, owner, voters, quorum)
        if why is not None:
            not_counted.append((log.path, why))
            continue
        assert node_id is not None
        if node_id in counted:
            raise UsageError(f"is of voter {node_id}, like {places[node_id]}: one log of each is looked at", path=log.path)
        state = log.quorum_state
        counted[node_id] = VoterLog(node_id, headers.lineage, None if state is None else state.leader_epoch)
        places[node_id] = log.path
    return list(counted.values()), not_counted


def _voters(log: MetadataLog, quorum: QuorumView, voter_ids: Sequence[int] | None) -> tuple[tuple[int, ...], VotersOrigin]:
    if voter_ids is not None:
        return tuple(sorted(set(voter_ids))), VotersOrigin.OPTION
    if quorum.voters is not None:
        return tuple(sorted({voter.voter_id for voter in quorum.voters})), VotersOrigin.RECORDS
    state = log.quorum_state
    if state is not None and state.voters:
        return tuple(sorted(set(state.voters))), VotersOrigin.QUORUM_STATE
    return (), VotersOrigin.NOTHING


def _why_not_counted(node_id: int | None, owner: MetaProperties | None, voters: tuple[int, ...], quorum: QuorumView) -> str | None:
    if node_id is None:
        return "nothing beside it says whose log it is (meta.properties)"
    if node_id not in voters:
        return f"node {node_id} is no voter"
    if quorum.kraft_version == 0 or owner is None or owner.directory_id is None:
        return None
    known = next((each.directory_id for each in quorum.voters or () if each.voter_id == node_id), None)
    if known is not None and known != owner.directory_id:
        return f"the directory is not the one that voter {node_id} votes with: its disk was replaced"
    return None


def proof_findings(log: MetadataLog, proof: Proof, last_offset: int, *, told: Iterable[Finding]) -> list[Finding]:
    """What is to be said of a proof: damage of the logs that it looked at, what is not proven, and logs that do not count.

    Args:
        log: in question.
        proof: of it.
        last_offset: that was taken.
        told: findings so far; the same damage is not told twice.
    """
    messages = {each.message for each in told}
    findings = [each for each in (finding_of_error(error, log.path) for error in proof.damage) if each.message not in messages]
    if last_offset >= proof.end_offset:
        message = f"offsets {proof.end_offset} to {last_offset} are not proven to be committed: {unproven_reason(proof)}"
        findings.append(Finding("unproven-tail", Severity.NOTE, log.path, message, proof.end_offset))
    return findings + [Finding("voter-not-counted", Severity.NOTE, path, why) for path, why in proof.not_counted]


def unproven_reason(proof: Proof) -> str:
    """Why nothing behind what is proven is proven."""
    if proof.majority is None:
        return "nothing says who the voters are" if not proof.voters else "no log of a voter is known"
    return proof.majority.why
