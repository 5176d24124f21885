"""The work of the verb ``cluster advise``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.cluster_advise import AdviseAssumptions
from snaprebuild.cli.options.common import S3Options, as_of_ms, quoted
from snaprebuild.cli.render.quorum import StartAdviceView
from snaprebuild.cli.runs.run_settings import run_facts, run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.advise import Readers, advise_start, metadata_directory_of, start_settings_of
from snaprebuild.cluster.quorum.log_start import FollowerMode, OffsetAndEpoch, Progress, StartSettings
from snaprebuild.errors import UsageError

__all__ = ["run_cluster_advise"]


def run_cluster_advise(
    *,
    directory: str | None,
    others: list[str] | None,
    server_properties: str | None,
    followers: FollowerMode,
    as_of: str | None,
    assumed: AdviseAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Advises on where each policy would move the start of a metadata log."""
    out.begin()
    location, configured = _configured(directory, server_properties)
    check_directories([location, *(others or ())])
    readers = _readers(assumed)
    settings = _settings(configured, assumed)
    advice = advise_start(location, others or (), as_of_ms(as_of), settings, readers, followers, run_of(s3))
    return StartAdviceView(advice)


def _readers(assumed: AdviseAssumptions) -> Readers:
    """The readers of the log, and how far they are.

    Raises:
        UsageError: a reader is named twice, or the start of the leader's log is no offset and epoch.
    """
    if assumed.leader_start is None:
        start = None
    else:
        start = OffsetAndEpoch(int(assumed.leader_start[0]), assumed.leader_start[1])
    if start is not None and (start.offset > INT64_MAX or start.epoch > INT32_MAX):
        raise UsageError(f"--assume leader_start: expected OFFSET:EPOCH, found {quoted(f'{start.offset}:{start.epoch}')}")
    return Readers(_progress("replica", assumed.replica), _progress("listener", assumed.listener), start)


def _settings(configured: StartSettings, assumed: AdviseAssumptions) -> StartSettings:
    """The configured settings with the assumed values."""
    if assumed.max_retention_bytes is not None:
        configured = replace(configured, retention_bytes=assumed.max_retention_bytes)
    if assumed.max_retention_ms is not None:
        configured = replace(configured, retention_ms=assumed.max_retention_ms)
    if assumed.lag_time_max_ms is not None:
        configured = replace(configured, lag_time_max_ms=assumed.lag_time_max_ms)
    return configured


def _configured(directory: str | None, server_properties: str | None) -> tuple[str, StartSettings]:
    """The directory that is advised on, and the settings before options change them."""
    check_directories(None, server_properties=server_properties)
    if server_properties is None:
        if directory is None:
            raise UsageError("name the directory of a metadata log, or the --server-properties of its node")
        return directory, StartSettings()
    properties = run_facts().properties(server_properties)
    location = metadata_directory_of(properties) if directory is None else directory
    return location, start_settings_of(properties, server_properties)


def _progress(name: str, values: Sequence[tuple[str, int]]) -> tuple[Progress, ...]:
    readers: dict[str, Progress] = {}
    for each, offset in values:
        if each in readers:
            raise UsageError(f"--assume {name}: {each} is named twice")
        readers[each] = Progress(each, offset)
    return tuple(readers.values())
