"""The options of verbs that read segments, beside a live broker or not: how fast, how many at once, who comes first, what stays cached."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import JOBS_MAX, Size, WholeNumber

__all__ = ["Impact", "Load", "LoadAlone", "Priority"]


MEMORY_BYTES_MIN = 64 << 20
"""The command itself, and a block of a segment."""


class Priority(StrEnum):
    """Who comes first."""

    AUTO = "auto"
    IDLE = "idle"
    USUAL = "usual"


class Impact(StrEnum):
    """Share of the machine."""

    LOW = "low"
    NORMAL = "normal"
    FULL = "full"


@dataclass(frozen=True)
class LoadAlone:
    """How much a verb without workers may read at once, and who comes first; each field is an option."""

    impact: Annotated[
        Impact | None,
        typer.Option(
            "--impact",
            show_default=False,
            help="Share of the machine. low: 64 MiB/s of each disk at idle priority. normal: as fast as any program. full: "
            "also fills the page cache. Risk: with normal or full a running broker may wait for its disks. Default: low "
            "while a broker runs.",
        ),
    ] = None

    max_read_rate: Annotated[
        int | None,
        typer.Option(
            "--max-read-rate",
            metavar="BYTES",
            click_type=Size(1, INT64_MAX),
            help="Bytes (or 64MiB) per second that the run may read from files, all workers and disks together. Default: 64 "
            "MiB for each disk while a broker runs, else any number.",
        ),
    ] = None
    priority: Annotated[
        Priority,
        typer.Option(
            "--priority",
            show_default=False,
            help="auto: idle while a broker runs, else usual. idle: lowest priority for processor, disk and memory. usual: "
            "that of the shell. Default: auto.",
        ),
    ] = Priority.AUTO
    max_memory: Annotated[
        int | None,
        typer.Option(
            "--max-memory",
            metavar="BYTES",
            click_type=Size(MEMORY_BYTES_MIN, INT64_MAX),
            help="Memory limit of the run with all workers (bytes, or 2GiB), at least 64MiB. A partition that needs more fails "
            "alone. Default: any amount.",
        ),
    ] = None
    fill_page_cache: Annotated[
        bool,
        typer.Option(
            "--fill-page-cache",
            help="Keep what is read in the page cache for the next run. Default: leave the page cache as it was.",
        ),
    ] = False

    @property
    def readers_per_disk(self) -> int | None:
        """Workers that read from one disk at once; None where that is not asked for."""
        return None

    def limits(self) -> AbstractContextManager[None]:
        """The verb reads so inside, before it is known whether a broker is at work."""
        from snaprebuild.storage.io_limits.policy import IoLimits, limited_io

        wanted = IoLimits(
            leaves_page_cache=not (self.fill_page_cache or self.impact is Impact.FULL),
            bytes_per_second=self.max_read_rate,
            at_idle_priority=self.priority is Priority.IDLE,
            readers_per_disk=self.readers_per_disk,
            max_memory_bytes=self.max_memory,
            adapts_to_broker=self.impact in (None, Impact.LOW),
            priority_is_automatic=self.priority is Priority.AUTO and self.impact in (None, Impact.LOW),
            is_low=self.impact is Impact.LOW,
        )
        return limited_io(wanted)


@dataclass(frozen=True)
class Load(LoadAlone):
    """The same for a verb with workers."""

    jobs_per_disk: Annotated[
        int | None,
        typer.Option(
            "--jobs-per-disk",
            metavar="N",
            click_type=WholeNumber(1, JOBS_MAX),
            help="Worker processes per disk. Default: one for a rotating disk, else as --jobs.",
        ),
    ] = None

    @property
    def readers_per_disk(self) -> int | None:
        """As ``--jobs-per-disk``."""
        return self.jobs_per_disk
