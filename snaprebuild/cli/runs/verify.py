"""The work of the verb ``verify``."""

from __future__ import annotations

from snaprebuild.cli.options.common import ExpiryOptions, LogOptions, S3Options
from snaprebuild.cli.options.kafka_release import release_of
from snaprebuild.cli.options.reading import CachingEngine
from snaprebuild.cli.options.rebuild import Crc
from snaprebuild.cli.render.verify import VerifyView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.run_settings import run_of, stores_of
from snaprebuild.cli.runs.sources import clock_of, open_selected, selection_of
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.judged_verify import judged_verify

__all__ = ["run_verify"]


def run_verify(
    *,
    logs: LogOptions,
    crc: Crc,
    expiry: ExpiryOptions,
    offsets: str | None,
    kafka_release: str | None,
    jobs: int | None,
    engine: CachingEngine,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Compares the snapshots of the selected partitions with a replay."""
    out.begin()
    release = release_of(kafka_release)
    selection = selection_of(logs, offsets)
    source = open_selected(logs.paths, logs.server_properties, selection, s3)
    clock = clock_of(source, expiry.as_of, expiry.expiration_ms)
    size_bytes = source.size_bytes
    with engine_of(engine) as chosen, bytes_progress("verifying", size_bytes) as progress:
        chosen.keep_effects(source.partitions, stores_of(s3))
        judged = judged_verify(
            source,
            run_of(s3, clock=clock, jobs=jobs, engine=chosen.reading(size_bytes, progress)),
            release=release,
            selection=selection,
            check_crc=crc is Crc.CHECK,
            progress=progress,
        )
    return VerifyView(judged, chosen.cache, details=out.everything)
