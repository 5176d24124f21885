"""The verb ``scan``."""

from __future__ import annotations

import time
from typing import Annotated

from snaprebuild.cli.engine_choice import engine_of
from snaprebuild.cli.options.common import Partition, Paths, S3Options, ServerProperties, Topic, open_selected, selection_of
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.engine import EngineOptions
from snaprebuild.cli.options.io_limits import LoadAlone
from snaprebuild.cli.options.kafka_release import KafkaRelease, release_of
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["scan"]


@verb(LoadAlone, collects=False)
def scan(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topic = None,
    partition: Partition = None,
    kafka_release: KafkaRelease = None,
    quiet: Annotated[
        bool,
        option(
            "--quiet",
            short="Print only what is wrong: nothing with exit code 0",
            details="For cron.",
            default="print everything",
        ),
    ] = False,
    engine: EngineOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: shows missing and suspect snapshots, and which rolled segments would block the upload to tiered storage.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. It also shows what the broker does at its next start. It reads names, sizes, checkpoints, small files, .txnindex,
    snapshots, the end of the last segment, and the metadata log. Exit code 1 if something is missing or wrong, 4 if the start loses
    records or fails.
    """
    from snaprebuild.cli.render.scan import QuietScanView, ScanView
    from snaprebuild.cluster.scan_producer_ids import with_producer_ids
    from snaprebuild.cluster.scan_storage import with_metadata_logs
    from snaprebuild.snapshots.scan.scan import scan_source
    from snaprebuild.snapshots.scan.scan_parts import ScanRequest

    if quiet and (out.as_json or out.everything):
        raise UsageError("--quiet prints only what is wrong: neither --output json nor -v goes with it")
    out.begin()
    release = release_of(kafka_release)
    source = open_selected(paths, server_properties, selection_of(topic, partition, None), s3)
    with engine_of(engine) as chosen:
        now_ms = int(time.time() * 1000)
        result = with_metadata_logs(scan_source(source, chosen.planning()), source, now_ms, release)
    result = with_producer_ids(result, source, now_ms)
    request = ScanRequest(paths=paths or (), server_properties=server_properties, topics=topic or (), partitions=partition or ())
    view = QuietScanView if quiet else ScanView
    return view(result, request, source.properties, all_rows=out.everything)
