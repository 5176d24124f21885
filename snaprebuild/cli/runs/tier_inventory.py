"""The work of the verb ``tier inventory``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.remote_storage import TierInventoryOptions
from snaprebuild.cli.render.tier import TierInventoryView
from snaprebuild.cli.runs.remote_storage import check_outside_store, configured_store, running_topic, store_access
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.published import line_of
from snaprebuild.storage.local.document_file import new_file
from snaprebuild.storage.store import absolute
from snaprebuild.storage.store_path import bucket_of
from snaprebuild.tier.inventory import inventory
from snaprebuild.tier.inventory.key_rows import KeyRow

__all__ = ["run_tier_inventory"]


def run_tier_inventory(store: str | None, options: TierInventoryOptions, out: MeasuredOutput, s3: S3Options) -> View:
    """Lists the copies of segments in remote storage."""
    out.begin(new_files={"--keys": options.keys})
    configured = configured_store(store, s3, options, writes=False)
    options = configured.options(options)
    s3 = configured.s3
    check_directories([configured.location, *(options.metadata_log or [])])
    check_metadata(options.metadata)
    running = running_topic(options.bootstrap_server, options.command_config, options.metadata_log)
    run = run_of(s3, clock=clock_at(options.as_of, None))
    access = store_access(configured.location, s3, options, running=running)
    check_outside_store(access.root, [out.report, out.metrics_file, options.keys])
    logs = None if options.metadata is None else MetadataLogs(absolute(options.metadata), run)
    cluster = None if logs is None else logs.named()
    if cluster is not None:
        access = replace(access, cluster_id=cluster.cluster_id)
    with _key_rows(options.keys) as on_key:
        result, findings = inventory.tier_inventory(
            access,
            run.stores,
            selection_of(options),
            as_of_ms=run.clock.as_of_ms,
            cluster=cluster,
            plugin=configured.plugin,
            bucket=bucket_of(access.root.path, run.stores),
            on_key=on_key,
        )
    if logs is not None:
        findings = [*logs.findings, *findings]
    return TierInventoryView(result, findings, options.private_key)


@contextmanager
def _key_rows(path: str | None) -> Iterator[Callable[[KeyRow], None] | None]:
    """Writes each row as a line to a new file, which gets its name when the block ends, unless the block raises; None without a path.

    Raises:
        RefusedError: the file is there, or would be among those of a broker.
        WriteFailedError: it cannot be written.
    """
    if path is None:
        yield None
        return
    with new_file(path) as file:

        def write(row: KeyRow) -> None:
            file.write(line_of(row).encode() + b"\n")

        yield write
