"""Other replicas that were given, with which the rules compare the one that is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from formats.partition.file_names import DirectoryForm
from snaprebuild.cluster.source.evidence import PeerEvidence
from snaprebuild.cluster.source.evidence_reader import peer_evidence
from snaprebuild.cluster.source.verifier import is_judged
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, finding_of_error
from snaprebuild.snapshots.source.source import Selection
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import S3Settings

__all__ = ["Peers", "read_peers"]


@dataclass(frozen=True, slots=True)
class Peers:
    """What other replicas say, by the name of their partition."""

    known: dict[str, tuple[PeerEvidence, ...]] = field(default_factory=dict)

    def of(self, directory: PartitionDir) -> tuple[PeerEvidence, ...]:
        """Those of a partition, but for the directory itself."""
        return tuple(peer for peer in self.known.get(directory.topic_partition, ()) if peer.path != directory.path)


def read_peers(paths: Sequence[str], selection: Selection, settings: S3Settings, findings: list[Finding]) -> Peers:
    """The replicas below some places.

    Args:
        paths: of log directories, or above them; none for no peers.
        selection: of partitions.
        settings: of object stores.
        findings: gets what cannot be read.

    Raises:
        UsageError: a path leads nowhere, or to no selected partition.
    """
    if not paths:
        return Peers()
    peers: dict[str, tuple[PeerEvidence, ...]] = {}
    for path in paths:
        found = find_partitions([path], settings)
        findings += [finding_of_error(error, error.path or "", may_vanish=True) for error in found.faults]
        directories = [each for log_dir in found.log_dirs for each in log_dir.partitions]
        if not found.faults and not any(map(selection.takes, directories)):
            raise UsageError(f"--peer: {selection.why_nothing(directories)}", path=path)
        for log_dir in found.log_dirs:
            for directory in log_dir.partitions:
                if directory.name.form is DirectoryForm.PLAIN and selection.takes(directory) and is_judged(directory):
                    known = peers.get(directory.topic_partition, ())
                    if all(peer.path != directory.path for peer in known):
                        peers[directory.topic_partition] = (*known, peer_evidence(directory, log_dir.state))
    return Peers(peers)
