"""Whether the next start sets a log aside, deletes it or ends, because of its topic id or its replicas. Pure: facts in, fates out.

Source: ``LogManager.loadLog``, ``LogManager.deleteStrayKRaftReplicas``, ``BrokerMetadataPublisher`` of 2.8.2, 3.6.1, 3.6.2, 3.7.0, 3.7.2,
3.9.2, 4.3.1 and 4.4.0.
"""

from __future__ import annotations

from formats.partition.file_names import DirectoryForm
from formats.partition.partition_metadata import PartitionMetadata, write_partition_metadata
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.releases import Release
from snaprebuild.broker.start_facts import BrokerFacts, PartitionFacts, TopicIdFile
from snaprebuild.storage.log_dir import ClusterKind

__all__ = ["FIRST_WITH_MANDATORY_ID", "is_set_aside_at_load", "lost_id_remedy", "stray_fates", "topic_id_absent"]

FIRST_THAT_DELETES_STRAYS: Release = (3, 3, 0)
FIRST_THAT_KEEPS_STRAYS: Release = (3, 7, 0)
"""From here on a log that is not assigned to the broker is set aside; before, it is deleted after ``file.delete.delay.ms``."""

FIRST_WITH_MANDATORY_ID: Release = (3, 7, 0)
"""Before it a KRaft broker takes a lost topic id from the image, and starts."""

FIRST_WITH_STRAYS: Release = (3, 7, 1)
"""From here on a log without a topic id is set aside; from the one before it ends the start (KAFKA-16512)."""


def is_set_aside_at_load(partition: PartitionFacts, broker: BrokerFacts, release: Release) -> bool:
    """Whether ``LogManager.loadLog`` sets the log aside as a stray. Before 3.7.1 strays are found after all logs were loaded."""
    if broker.cluster_kind is not ClusterKind.KRAFT or release < FIRST_WITH_STRAYS:
        return False
    if partition.topic_id_file is TopicIdFile.ABSENT:
        return True
    return _is_unassigned(partition)


def _is_unassigned(partition: PartitionFacts) -> bool:
    """Whether the image has another topic id for the log, or other replicas; not where either side is unknown."""
    assignment = partition.assignment
    if assignment is None or partition.topic_id is None:
        return False
    return assignment.topic_id != partition.topic_id or not assignment.is_replica


def topic_id_absent(partition: PartitionFacts, broker: BrokerFacts) -> list[Fate]:
    """A partition without a topic id, with KRaft: a fate for the releases that do not start, and one for those that set it aside."""
    if partition.topic_id_file is not TopicIdFile.ABSENT or broker.cluster_kind is not ClusterKind.KRAFT:
        return []
    possible = broker.releases.releases
    is_replica = partition.form is DirectoryForm.PLAIN
    throwing = [each for each in possible if FIRST_WITH_MANDATORY_ID <= each < FIRST_WITH_STRAYS]
    setting_aside = [each for each in possible if each >= FIRST_WITH_STRAYS]
    fates = []
    if throwing:
        fates.append(
            Fate(
                kind=FateKind.NO_START,
                **partition.place,
                code="no-topic-id",
                cause="no partition.metadata",
                evidence="the listing",
                releases=broker.releases.text_of(throwing),
                log_line="java.lang.RuntimeException: does not have a topic ID",
                remedy=lost_id_remedy(partition) or "Copy partition.metadata from another replica of the same topic",
            )
        )
    if setting_aside:
        fates.append(
            Fate(
                kind=FateKind.STRAY if partition.has_records and is_replica else FateKind.OLD_REPLICA,
                **partition.place,
                code="no-topic-id",
                cause="no topic id",
                evidence="the listing",
                releases=broker.releases.text_of(setting_aside),
                log_line="has been marked as stray",
                remedy=lost_id_remedy(partition)
                or "If another replica is in sync, let Kafka fetch the partition again; "
                "else copy partition.metadata from a replica of the same topic before the start",
            )
        )
    return fates


def lost_id_remedy(partition: PartitionFacts) -> str:
    """The remedy for a lost ``partition.metadata`` whose content the metadata history proves; empty if it does not."""
    assignment = partition.assignment
    if assignment is None or assignment.lost_topic_id is None:
        return ""
    version, topic_id = write_partition_metadata(PartitionMetadata(0, assignment.lost_topic_id)).decode().split("\n")
    write = f'write the two lines "{version}" and "{topic_id}" into it before the start, as the owner of the segments'
    proof = "The metadata log proves the content from its first record on"
    if not assignment.in_sync:
        return f"{write[0].upper()}{write[1:]}. {proof}"
    names = ", ".join(map(str, assignment.in_sync))
    others = f"broker {names} is" if len(assignment.in_sync) == 1 else f"brokers {names} are"
    return f"Safer: {others} in sync, so move the directory away and let Kafka fetch the partition again. Or {write}. {proof}"


def _first_that_sets_aside(partition: PartitionFacts) -> Release:
    """The first release that sets a stray aside. 3.7.0 looks at no future copy."""
    return FIRST_WITH_STRAYS if partition.form is DirectoryForm.FUTURE else FIRST_THAT_KEEPS_STRAYS


def stray_fates(partition: PartitionFacts, broker: BrokerFacts) -> list[Fate]:
    """A log of another topic id, or of a partition that is assigned to other brokers (``LogManager``, ``BrokerMetadataPublisher``)."""
    assignment = partition.assignment
    if assignment is None or broker.cluster_kind is not ClusterKind.KRAFT or not _is_unassigned(partition):
        return []
    is_other_id = assignment.topic_id != partition.topic_id
    possible = [release for release in broker.releases.releases if release >= FIRST_THAT_DELETES_STRAYS]
    deleting = [each for each in possible if each < FIRST_THAT_KEEPS_STRAYS]
    keeping = [each for each in possible if each >= _first_that_sets_aside(partition)]
    # A replica that was moved, as the cluster wanted it.
    is_moved = not is_other_id and assignment.is_current
    is_needed = partition.has_records and not is_moved and partition.form is DirectoryForm.PLAIN
    cause = "its topic id is not in the image" if is_other_id else "it is assigned to other brokers"
    fates = []
    for releases, kind in ((deleting, FateKind.STRAY_DELETED), (keeping, FateKind.STRAY)):
        if releases:
            fates.append(
                Fate(
                    kind=kind if is_needed else FateKind.OLD_REPLICA,
                    **partition.place,
                    code="not-assigned",
                    cause=cause,
                    evidence="partition.metadata, the metadata log of this node",
                    releases=broker.releases.text_of(releases),
                    log_line="has been marked as stray" if kind is FateKind.STRAY else "Deleting stray partition",
                    remedy="If the records are needed, move the directory out of the log directory before the start",
                )
            )
    return fates
