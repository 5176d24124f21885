"""The work of the verb ``scan``."""

from __future__ import annotations

from snaprebuild.cli.options.common import LogOptions, S3Options
from snaprebuild.cli.options.kafka_release import release_of
from snaprebuild.cli.options.reading import EngineOptions
from snaprebuild.cli.render.scan import QuietScanView, ScanView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.sources import open_logs
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_producer_ids import with_producer_ids
from snaprebuild.cluster.scan_storage import with_metadata_logs
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.run import current_time_ms
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_parts import ScanRequest

__all__ = ["run_scan"]


def run_scan(
    *,
    logs: LogOptions,
    kafka_release: str | None,
    quiet: bool,
    engine: EngineOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Judges what is missing or suspect, and what the broker does at its next start."""
    if quiet and (out.as_json or out.everything):
        raise UsageError("--quiet prints only what is wrong: neither --output json nor -v goes with it")
    out.begin()
    release = release_of(kafka_release)
    source = open_logs(logs, s3)
    with engine_of(engine) as chosen:
        now_ms = current_time_ms()
        result = with_metadata_logs(scan_source(source, chosen.planning()), source, now_ms, release)
    result = with_producer_ids(result, source, now_ms)
    request = ScanRequest(
        paths=logs.paths or (),
        server_properties=logs.server_properties,
        topics=logs.topic or (),
        partitions=logs.partition or (),
        topic_partitions=logs.topic_partition or (),
    )
    view = QuietScanView if quiet else ScanView
    return view(result, request, source.properties, now_ms, all_rows=out.everything)
