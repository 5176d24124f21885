"""The JSON form of a scan, ``snaprebuild.scan/1`` (docs/json.md, docs/schema/scan.schema.json)."""

from __future__ import annotations

from dataclasses import asdict

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.documents.run_facts import run_json
from snaprebuild.snapshots.scan.copy_attempt import ways_to_stop
from snaprebuild.snapshots.scan.result import AtNextStart, LogDirScan, PartitionScan, ScanResult, Shutdown

__all__ = ["SCAN_VERSION", "scan_as_json"]

SCAN_VERSION = 1

INTERVAL = "remote.log.manager.task.interval.ms of the broker, 30 s by default"

NOT_LOOKED_AT = (
    "who leads the partition: only a leader uploads",
    "remote.storage.enable and remote.log.copy.disable of the topic",
    "remote.copy.lag.ms and remote.copy.lag.bytes of the topic (4.4), which let a segment wait on purpose",
    "what is in remote storage (tier inventory)",
)


def scan_as_json(result: ScanResult) -> dict[str, object]:
    """Plain values of everything that was found; partitions one at a time, as a broker may have hundreds of thousands of segments."""
    shutdowns = {log_dir.state.path: log_dir.shutdown for log_dir in result.log_dirs}
    return {
        "run": run_json(log_dir.state for log_dir in result.log_dirs),
        "total": result.counts.as_json(),
        "log_dirs": [_log_dir(log_dir) for log_dir in result.log_dirs],
        "topics": [{"topic": topic, **counts.as_json()} for topic, counts in sorted(result.topics.items())],
        "partitions": (_partition(partition, shutdowns[partition.source.log_dir.path]) for partition in result.partitions),
        "upload_attempts": _attempts(),
    }


def _log_dir(log_dir: LogDirScan) -> dict[str, object]:
    meta = log_dir.state.meta
    return {
        "path": log_dir.state.path,
        "node_id": None if meta is None else meta.node_id,
        "cluster_id": None if meta is None else meta.cluster_id,
        "directory_id": None if meta is None or meta.directory_id is None else uuid_to_text(meta.directory_id),
        "shutdown": log_dir.shutdown.value,
        "held_by": log_dir.held_by,
        **log_dir.counts.as_json(),
    }


def _partition(partition: PartitionScan, shutdown: Shutdown) -> dict[str, object]:
    directory = partition.source.directory
    return {
        "path": directory.path,
        "log_dir": partition.source.log_dir.path,
        "topic_partition": directory.topic_partition,
        "topic": directory.name.topic,
        "partition": directory.name.partition,
        "topic_id": None if partition.topic_id is None else uuid_to_text(partition.topic_id),
        "form": directory.name.form.name.lower(),
        "topic_kind": partition.source.topic_kind.value,
        "is_compacted": partition.source.is_compacted,
        "can_be_tiered": partition.source.can_be_tiered,
        "is_tiered": partition.source.is_tiered,
        "log_start_offset": partition.source.log_start_offset,
        "log_end": {
            "offset": partition.log_end.offset,
            "known_by": partition.log_end.known_by,
            "at_least": partition.log_end.at_least,
        },
        "high_watermark": (partition.source.log_dir.high_watermarks or {}).get(directory.topic_partition),
        "leader_epoch": partition.leader_epoch,
        "counts": partition.counts.as_json(),
        "missing": list(partition.missing),
        "segments": _segments(partition),
        "boundaries": [
            {
                "offset": boundary.offset,
                "is_log_end": boundary.is_log_end,
                "state": boundary.state.value,
                "entries": boundary.entries,
                "at_next_start": _fate(boundary.at_next_start),
                "why": list(boundary.why),
                "first_open_offset": boundary.first_open_offset,
            }
            for boundary in partition.boundaries
        ],
        "other_snapshots": [{"offset": offset, "at_next_start": _fate(fate)} for offset, fate in partition.other_snapshots],
        "files": {
            "misnamed": list(directory.misnamed),
            "temporary": list(directory.temporary),
            "irregular": list(directory.unreadable),
            "index_without_segment": list(directory.lone_indexes),
            "deleted": len(directory.deleted),
            "unknown": directory.others,
        },
        "upload": _upload(partition),
        "next_start": _next_start(partition, shutdown),
    }


def _segments(partition: PartitionScan) -> dict[str, list[int]]:
    """In columns: a broker has hundred thousands, and a line for each fact of each would be most of the document."""
    files = [segment.log for segment in partition.source.directory.segments]
    return {
        "base_offsets": [segment.base_offset for segment in partition.source.directory.segments],
        "sizes_bytes": [file.identity.size_bytes for file in files],
        "modified_ms": [file.identity.mtime_ns // 1_000_000 for file in files],
    }


def _upload(partition: PartitionScan) -> dict[str, object]:
    bound, attempt = partition.preflight.bound, partition.preflight.next_attempt
    return {
        "stuck_bytes": partition.stuck_bytes,
        "stuck_bytes_after_rebuild": partition.stuck_bytes_after_rebuild,
        "last_stable_offset": partition.last_stable_offset,
        "last_stable_offset_at_least": bound.at_least,
        "last_stable_offset_known_by": bound.known_by,
        "last_stable_offset_at_most": bound.at_most,
        "waiting_segments": partition.waiting_segments,
        "blockers": {
            blocker.value: {"segments": count, "freed_by": blocker.freed_by.value}
            for blocker, count in partition.blockers().items()
        },
        "blocked_segments": [
            {
                "base_offset": segment.base_offset,
                "next_base_offset": segment.next_base_offset,
                "size_bytes": segment.size_bytes,
                "blockers": [blocker.value for blocker in segment.blockers],
            }
            for segment in partition.blocked
        ],
        "closed_segments": [
            {**asdict(run), "state": run.state.value, "blockers": [blocker.value for blocker in run.blockers]}
            for run in partition.preflight.runs
        ],
        "next_attempt": None if attempt is None else {**asdict(attempt), "assumes": list(attempt.assumes)},
    }


def _attempts() -> dict[str, object]:
    """What is the same for all partitions."""
    return {"interval": INTERVAL, "ways_to_stop": [asdict(way) for way in ways_to_stop()], "not_looked_at": list(NOT_LOOKED_AT)}


def _next_start(partition: PartitionScan, shutdown: Shutdown) -> dict[str, object] | None:
    """What the next start does. Where the log end is not known, offsets above the last segment's base are left out."""
    start = partition.next_start
    if start is None:
        return None
    bound = partition.log_end.offset
    if bound is None:
        bound = partition.log_end.at_least

    def known(offsets: tuple[int, ...]) -> list[int]:
        return [offset for offset in offsets if offset <= bound]

    return {
        "after": "a clean stop" if shutdown in (Shutdown.CLEAN, Shutdown.RUNNING) else "an unclean stop",
        "loads": start.loaded if start.loaded is not None and start.loaded <= bound else None,
        "replays_from": start.replayed_from,
        "removes_stray": known(start.stray),
        "removes_out_of_range": known(start.out_of_range),
        "removes_corrupt": known(start.corrupt),
        "writes_empty": known(start.written_empty),
        "rebuilds": known(start.rebuilt),
    }


def _fate(fate: AtNextStart | None) -> str | None:
    return None if fate is None else fate.value
