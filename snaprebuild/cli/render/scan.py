"""The result of ``scan``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.broker.broker_files import Properties
from formats.partition.partition_metadata import uuid_text_or_none
from snaprebuild.broker.fates import Fate
from snaprebuild.broker.leadership import MustNotLead, unfit_replica
from snaprebuild.cli.render.scan_table import print_boundaries, print_scan, scan_answer
from snaprebuild.cli.view import Answer, View
from snaprebuild.documents.scan import Scan
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.run import run_record
from snaprebuild.snapshots.scan.scan_parts import (
    BlockerCount,
    BrokerSettings,
    Files,
    FreeSpace,
    NextStartSnapshots,
    ScannedLogDir,
    ScannedPartition,
    ScannedSegment,
    ScannedTopic,
    ScanRequest,
    ScanRun,
    Upload,
    UploadAttempts,
)
from snaprebuild.snapshots.scan.scan_result import LogDirScan, PartitionScan, ScanResult, Shutdown
from snaprebuild.snapshots.scan.upload_attempts import ways_to_stop
from snaprebuild.snapshots.source.broker_properties import copy_quota_of, expiration_of
from snaprebuild.storage.log_dir import kind_of
from snaprebuild.storage.partition_names import names_of

__all__ = ["QuietScanView", "ScanView", "scan_document"]

ATTEMPTS = UploadAttempts(
    interval="remote.log.manager.task.interval.ms of the broker, 30 s by default",
    ways_to_stop=ways_to_stop(),
    not_looked_at=[
        "who leads the partition: only a leader uploads",
        "remote.log.copy.disable of the topic, and remote.storage.enable where topics[].remote_storage is unknown",
        "remote.copy.lag.ms and remote.copy.lag.bytes (4.4), which let a segment wait on purpose, where no metadata log shows them",
        "what is in remote storage (tier inventory)",
    ],
)


class ScanView(View):
    """A scan: its answer, the partitions that need attention, and its document (docs/schema/scan.schema.json)."""

    prints_notes = True
    names_unread = True
    codes_in_table = frozenset({"missing-snapshots", "no-leader-epochs", "above-last-stable-offset"})

    def __init__(
        self, result: ScanResult, request: ScanRequest, properties: Properties | None, now_ms: int, *, all_rows: bool
    ) -> None:
        super().__init__(result.findings)
        self._result = result
        self._now_ms = now_ms
        self._request = request
        self._properties = properties
        self.prints_all_findings = all_rows

    def document(self) -> Scan:
        return scan_document(self._result, self._request, self._properties)

    def print_table(self) -> None:
        print_scan(self._result, all_rows=self.prints_all_findings)
        if self.prints_all_findings:
            print_boundaries(self._result)

    def answer(self) -> Answer | None:
        return scan_answer(self._result, self._now_ms)


class QuietScanView(ScanView):
    """A scan with ``--quiet``: nothing is printed where nothing is wrong, and no table."""

    prints_notes = False
    codes_in_table = frozenset()

    def print_table(self) -> None:
        pass

    def answer(self) -> Answer | None:
        return super().answer() if exit_code_of(self.findings) else None


def scan_document(result: ScanResult, request: ScanRequest, properties: Properties | None = None) -> Scan:
    """The document; partitions one at a time, as a broker may have hundreds of thousands of segments.

    Args:
        result: of the scan.
        request: paths and selection.
        properties: of the broker; None without ``--server-properties``.
    """
    shutdowns = {log_dir.state.path: log_dir.shutdown for log_dir in result.log_dirs}
    fates: dict[str, list[Fate]] = {}
    for fate in result.fates:
        fates.setdefault(fate.subject, []).append(fate)
    return Scan(
        request=request,
        run=_run(result),
        totals=result.totals,
        log_dirs=[_log_dir(log_dir) for log_dir in result.log_dirs],
        topics=[
            ScannedTopic(topic=topic, remote_storage=result.remote_storage[topic], totals=totals)
            for topic, totals in sorted(result.topics.items())
        ],
        partitions=(
            _partition(
                partition,
                shutdowns[partition.source.log_dir.path],
                fates.get(partition.source.directory.topic_partition, []),
                may_upload=result.may_upload(partition),
            )
            for partition in result.partitions
        ),
        upload_attempts=ATTEMPTS,
        status=result.status.word,
        fates=[fate.document() for fate in result.fates],
        counts=result.status.counts,
        settings=None if properties is None else _settings(properties),
    )


def _run(result: ScanResult) -> ScanRun:
    run = run_record(log_dir.state for log_dir in result.log_dirs)
    free_space = [
        FreeSpace(path=log_dir.state.path, free_bytes=log_dir.free_bytes)
        for log_dir in result.log_dirs
        if log_dir.free_bytes is not None
    ]
    return ScanRun(**msgspec.structs.asdict(run), free_space=free_space)


def _settings(properties: Properties) -> BrokerSettings:
    protocol = (properties.get("inter.broker.protocol.version") or "").strip()
    return BrokerSettings(
        inter_broker_protocol_version=protocol or None,
        copy_quota_bytes_per_second=copy_quota_of(properties),
        producer_expiration_ms=expiration_of(properties),
    )


def _log_dir(log_dir: LogDirScan) -> ScannedLogDir:
    state = log_dir.state
    return ScannedLogDir(
        path=state.path,
        node_id=state.node_id,
        cluster_id=state.cluster_id,
        directory_id=uuid_text_or_none(state.directory_id),
        cluster_kind=kind_of(state.meta),
        broker_epoch=log_dir.broker_epoch,
        broker_epoch_source=log_dir.broker_epoch_source,
        shutdown=log_dir.shutdown,
        held_by=log_dir.held_by,
        kafka_release=log_dir.kafka_release,
        totals=log_dir.totals,
    )


def _partition(partition: PartitionScan, shutdown: Shutdown, fates: Sequence[Fate], *, may_upload: bool) -> ScannedPartition:
    source = partition.source
    directory = partition.source.directory
    return ScannedPartition(
        **names_of(directory),
        path=directory.path,
        log_dir=source.log_dir.path,
        topic_id=uuid_text_or_none(partition.topic_id),
        form=directory.name.form.name.lower(),
        topic_kind=source.topic_kind,
        is_compacted=source.is_compacted,
        can_be_tiered=source.can_be_tiered,
        is_tiered=source.is_tiered,
        uploads_under_id_zero=source.uploads_under_id_zero,
        log_start_offset=source.log_start_offset,
        log_end=partition.log_end,
        high_watermark=_high_watermark(partition),
        leader_epoch=partition.leader_epoch,
        totals=partition.totals,
        missing_offsets=partition.missing_offsets,
        segments=[
            ScannedSegment(
                base_offset=segment.base_offset,
                size_bytes=segment.size_bytes,
                modified_ms=segment.log.identity.modified_ns // 1_000_000,
            )
            for segment in directory.segments
        ],
        boundaries=partition.boundaries,
        other_snapshots=partition.other_snapshots,
        files=Files(
            misnamed=directory.misnamed,
            temporary=directory.temporary,
            irregular=directory.unreadable,
            index_without_segment=directory.lone_indexes,
            deleted=len(directory.deleted),
            unknown=directory.others,
        ),
        upload=_upload(partition, may_upload=may_upload),
        next_start=_next_start(partition, shutdown),
        must_not_lead=_must_not_lead(partition, fates),
        leader_epoch_start_offset=_leader_epoch_start(partition),
        high_watermark_epoch=_high_watermark_epoch(partition),
        newest_snapshot=None if partition.newest_snapshot is None else partition.newest_snapshot.newest(),
    )


def _leader_epoch_start(partition: PartitionScan) -> int | None:
    epochs = partition.facts.leader_epochs
    if partition.leader_epoch is None or not epochs:
        return None
    return epochs[-1].start_offset


def _high_watermark(partition: PartitionScan) -> int | None:
    source = partition.source
    return (source.log_dir.high_watermarks or {}).get(source.directory.topic_partition)


def _high_watermark_epoch(partition: PartitionScan) -> int | None:
    """Leader epoch of the last record below the high watermark, by the epochs of the checkpoint, which ascend."""
    mark = _high_watermark(partition) or 0
    return max((each.epoch for each in partition.facts.leader_epochs if each.start_offset < mark), default=None)


def _must_not_lead(partition: PartitionScan, fates: Sequence[Fate]) -> MustNotLead | None:
    """By the fates of this directory: another log directory may have a partition of the same name."""
    path = partition.source.directory.path
    own = [fate for fate in fates if fate.path == path or fate.path.startswith(f"{path}/")]
    return unfit_replica(own)


def _upload(partition: PartitionScan, *, may_upload: bool) -> Upload:
    bound = partition.preflight.bound
    return Upload(
        stuck_bytes=partition.stuck_bytes,
        stuck_bytes_after_rebuild=partition.stuck_bytes_after_rebuild,
        last_stable_offset=partition.last_stable_offset,
        last_stable_offset_at_least=bound.at_least,
        last_stable_offset_source=bound.source,
        last_stable_offset_at_most=bound.at_most,
        waiting_segments=partition.preflight.waiting_segments if may_upload else 0,
        waiting_unknown_segments=partition.preflight.waiting_unknown_segments if may_upload else 0,
        copy_lag=partition.preflight.copy_lag,
        blockers=[
            BlockerCount(blocker=blocker, segments=count, freed_by=blocker.freed_by)
            for blocker, count in partition.blockers().items()
        ],
        blocked_segments=partition.blocked_segments,
        rolled_segments=partition.preflight.rolled_segments,
        next_attempt=partition.preflight.next_attempt,
    )


def _next_start(partition: PartitionScan, shutdown: Shutdown) -> NextStartSnapshots | None:
    """The effects of the next start. Where the log end is not known, offsets above the last segment's base are left out."""
    start = partition.next_start
    if start is None:
        return None
    bound = partition.log_end.at_least if partition.log_end.offset is None else partition.log_end.offset

    def below_end(offsets: Sequence[int]) -> list[int]:
        return [offset for offset in offsets if offset <= bound]

    is_clean = shutdown in (Shutdown.CLEAN, Shutdown.RUNNING)
    loaded_offset = start.loaded
    if loaded_offset is not None and loaded_offset > bound:
        loaded_offset = None
    return NextStartSnapshots(
        after="a clean stop" if is_clean else "an unclean stop",
        loaded_offset=loaded_offset,
        replay_from_offset=start.replay_from_offset,
        removes_stray=below_end(start.stray),
        removes_out_of_range=below_end(start.out_of_range),
        removes_corrupt=below_end(start.corrupt),
        writes_empty=below_end(start.written_empty),
        rebuilds=below_end(start.rebuilt),
    )
