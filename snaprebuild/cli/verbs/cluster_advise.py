"""The verb ``cluster advise``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.facts import run_facts
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import S3Options, WholeNumber, as_of_ms, check_directories, quoted
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.verbs.simulate_metadata_log import Followers
from snaprebuild.cli.view import View
from snaprebuild.cluster.quorum.log_start import FollowerMode, OffsetAndEpoch, Progress, StartSettings
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.cluster.quorum.advise import Readers

__all__ = ["cluster_advise"]


class ReaderOffset(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """The next offset of a reader: NAME:OFFSET."""

    def __init__(self, name: str, pattern: str) -> None:
        self.name = name
        self._pattern = re.compile(f"({pattern}):([0-9]{{1,19}})")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Both parts; a usage error if it has others."""
        match = self._pattern.fullmatch(value)
        if match is None or int(match[2]) > INT64_MAX:
            self.fail(f"expected {self.name}, found {quoted(value)}", param, ctx)
        return match[1], int(match[2])


class AdviseAssumptions(msgspec.Struct, frozen=True):
    """What the directories do not show of the quorum."""

    replica: Annotated[
        Sequence[tuple[str, int]],
        Assumption(
            ReaderOffset("ID:OFFSET", "[0-9]{1,60}"),
            OptionText(short="Next offset that a live replica fetches; repeatable", default="the end of OTHER"),
            is_list=True,
        ),
    ] = ()
    listener: Annotated[
        Sequence[tuple[str, int]],
        Assumption(
            ReaderOffset("NAME:OFFSET", "[A-Za-z0-9._-]{1,60}"),
            OptionText(short="Next offset that a listener of this node reads; repeatable", default="none"),
            is_list=True,
        ),
    ] = ()
    leader_start: Annotated[
        tuple[str, int] | None,
        Assumption(
            ReaderOffset("OFFSET:EPOCH", "[0-9]{1,19}"), OptionText(short="Start of the leader's log", default="from OTHER")
        ),
    ] = None
    max_retention_bytes: Annotated[
        int | None,
        Assumption(
            WholeNumber(-1, INT64_MAX),
            OptionText(short="metadata.max.retention.bytes, -1 for none", default="that of --server-properties, else 104857600"),
        ),
    ] = None
    max_retention_ms: Annotated[
        int | None,
        Assumption(
            WholeNumber(-1, INT64_MAX),
            OptionText(
                short="metadata.max.retention.ms, -1 for none", default="that of --server-properties, else 604800000, 7 days"
            ),
        ),
    ] = None
    lag_time_max_ms: Annotated[
        int | None,
        Assumption(
            WholeNumber(0, INT64_MAX),
            OptionText(short="Longest time that kafka-14932 waits for readers", default="604800000, 7 days"),
        ),
    ] = None

    def readers(self) -> Readers:
        """The readers of the log, and how far they are.

        Raises:
            UsageError: a reader is named twice, or the start of the leader's log is no offset and epoch.
        """
        from snaprebuild.cluster.quorum.advise import Readers

        start = None if self.leader_start is None else OffsetAndEpoch(int(self.leader_start[0]), self.leader_start[1])
        if start is not None and (start.offset > INT64_MAX or start.epoch > INT32_MAX):
            raise UsageError(f"--assume leader_start: expected OFFSET:EPOCH, found {quoted(f'{start.offset}:{start.epoch}')}")
        return Readers(_progress("replica", self.replica), _progress("listener", self.listener), start)

    def settings(self, configured: StartSettings) -> StartSettings:
        """The configured settings with the assumed values."""
        return replace(
            configured,
            retention_bytes=configured.retention_bytes if self.max_retention_bytes is None else self.max_retention_bytes,
            retention_ms=configured.retention_ms if self.max_retention_ms is None else self.max_retention_ms,
            lag_time_max_ms=configured.lag_time_max_ms if self.lag_time_max_ms is None else self.lag_time_max_ms,
        )


@verb()
def cluster_advise(
    *,
    directory: Annotated[str | None, typer.Argument(metavar="[DIR]")] = None,
    others: Annotated[list[str] | None, typer.Argument(metavar="[OTHER...]")] = None,
    server_properties: Annotated[
        str | None,
        option(
            "--server-properties",
            metavar="FILE",
            short="Configuration of the node: its metadata log, if DIR is not given, and its retention",
            default="none",
        ),
    ] = None,
    followers: Followers = FollowerMode.STRICT,
    as_of: Annotated[
        str | None,
        option(
            "--as-of",
            metavar="TIME",
            short="Time of the decision: ISO 8601 (UTC without a zone), milliseconds since 1970, or now",
            default="now",
        ),
    ] = None,
    assumed: AdviseAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: shows where each policy would move the start of a metadata log now, and which nodes would have to load a checkpoint.

    DIR is a __cluster_metadata-0 directory, a log directory that holds one, or any directory above it. Each OTHER is the
    directory of another node of the quorum; its log end is what that node has fetched. Without DIR, --server-properties names the
    directory. The policies are those of `simulate metadata-log`.
    """
    from snaprebuild.cli.render.quorum import StartAdviceView
    from snaprebuild.cluster.quorum.advise import advise_start

    out.begin()
    location, configured = _configured(directory, server_properties)
    check_directories([location, *(others or ())])
    readers = assumed.readers()
    settings = assumed.settings(configured)
    advice = advise_start(location, others or (), as_of_ms(as_of), settings, readers, followers, s3.run())
    return StartAdviceView(advice)


def _configured(directory: str | None, server_properties: str | None) -> tuple[str, StartSettings]:
    """The directory that is advised on, and the settings before options change them."""
    from snaprebuild.cluster.quorum.advise import metadata_directory_of, start_settings_of

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
