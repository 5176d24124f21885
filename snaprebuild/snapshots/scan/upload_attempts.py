"""Outcomes of an attempt to upload a segment, by the release of the broker, and reasons that keep a broker from trying.

Source: ``RemoteLogManager.RLMCopyTask.copyLogSegmentsToRemote``, ``candidateLogSegments`` and ``copyLogSegment`` (``RLMTask`` before 3.9)
and ``ProducerStateManager.fetchSnapshot``. These were read in 3.6.0, 3.6.2, 3.7.0, 3.7.1, 3.8.0, 3.9.2, 4.1.0 and 4.3.1, and brokers of
3.6.2, 3.9.2 and 4.3.1 were run. 4.4.0 does the same.
"""

from __future__ import annotations

from snaprebuild.published import Part

__all__ = ["CopyOutcome", "WayToStop", "copy_outcomes", "ways_to_stop"]

UNTIL_3_7_0 = "3.6.0 to 3.7.0"
FROM_3_7_1 = "3.7.1 to 4.4"
ALL = "3.6.0 to 4.4"
NULL_POINTER = "java.lang.NullPointerException"
ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException"


class CopyOutcome(Part, frozen=True):
    """The result of an attempt to upload."""

    versions: str
    """Kafka releases with this result."""
    exception: str | None
    """Class of the exception; null if the segment is passed to the plugin."""
    message: str | None
    """Message of the exception; for a NullPointerException that of Java 14 and later."""
    thrown_in: str | None
    """Method that throws; null without an exception."""
    announces: bool
    """The segment is announced in __remote_log_metadata before, under a new id: if an exception follows, a phantom is left until retention
    or the log start passes it."""


class WayToStop(Part, frozen=True):
    """A setting that stops the attempts."""

    versions: str
    """Kafka releases that have the setting."""
    setting: str
    """Name and value of the setting."""
    effect: str


_TOO_LARGE = CopyOutcome(ALL, KAFKA_EXCEPTION, "larger than the maximum allowed segment size of 2147483647", "FileRecords", False)
_NO_EPOCHS = ("segmentLeaderEpochs can not be null or empty", "RemoteLogSegmentMetadata")
_NO_SNAPSHOT = 'Cannot invoke "java.io.File.toPath()" because "producerStateSnapshotFile" is null'
_NO_SNAPSHOT_UNTIL_3_7_0 = CopyOutcome(UNTIL_3_7_0, NULL_POINTER, None, "ProducerStateManager.fetchSnapshot", False)


def copy_outcomes(*, has_snapshot: bool, has_leader_epochs: bool, is_too_large: bool) -> tuple[CopyOutcome, ...]:
    """The outcomes for a segment that brokers try to upload, the oldest versions first.

    Args:
        has_snapshot: the broker knew of a snapshot at its next base offset when it loaded the log. The content does not matter.
        has_leader_epochs: one covers an offset of it.
        is_too_large: it has more than 2^31 - 1 bytes; the log is not even loaded.
    """
    if is_too_large:
        return (_TOO_LARGE,)
    if not has_leader_epochs:
        # The epochs are read after the snapshot: what throws first was moved in 3.7.1 (KAFKA-16209).
        versions = ALL if has_snapshot else FROM_3_7_1
        no_epochs = CopyOutcome(versions, ILLEGAL_ARGUMENT, *_NO_EPOCHS, announces=False)
        return (no_epochs,) if has_snapshot else (_NO_SNAPSHOT_UNTIL_3_7_0, no_epochs)
    if not has_snapshot:
        return (_NO_SNAPSHOT_UNTIL_3_7_0, CopyOutcome(FROM_3_7_1, NULL_POINTER, _NO_SNAPSHOT, "copyLogSegment", announces=True))
    return (CopyOutcome(ALL, None, None, None, announces=True),)


def ways_to_stop() -> tuple[WayToStop, ...]:
    """Settings that stop the attempts until the broker can be restarted, the best first. Source: ``LogConfig``, ``ConfigHandler``."""
    return (
        WayToStop(
            "3.9 and later, KRaft",
            "topic: remote.log.copy.disable=true",
            "stops the attempts at once; remote data is still read, and retention works on both sides. Local segments are then deleted by "
            "the topic's own retention, uploaded or not. Set local.retention.ms and local.retention.bytes to -2, or to the topic's values",
        ),
        WayToStop(
            "3.9 and later, KRaft",
            "topic: remote.storage.enable=false, remote.log.delete.on.disable=true",
            "stops the attempts and DELETES the data in remote storage: use it only if nothing was ever uploaded",
        ),
        WayToStop(
            "3.8 and later",
            "broker: remote.log.manager.copy.max.bytes.per.second",
            "stops nothing: it slows all uploads of the broker, and a failed attempt counts with the size of its segment",
        ),
        WayToStop(
            "3.6 to 3.8, and 3.9 with ZooKeeper",
            "topic: remote.storage.enable",
            "cannot be switched off: rebuild before you set it. A larger remote.log.manager.task.interval.ms makes attempts rarer, for all "
            "topics, after the next start of the broker",
        ),
    )
