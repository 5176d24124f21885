"""The options of verbs that read segments, beside a live broker or not: how fast, how many at once, who comes first, what stays cached."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from snaprebuild.cli.options.common import INT64_MAX, JOBS_MAX, Size, WholeNumber

__all__ = ["Load", "LoadAlone", "Priority"]


MEMORY_BYTES_MIN = 64 << 20
"""The command itself, and a block of a segment."""


class Priority(StrEnum):
    """Who comes first."""

    AUTO = "auto"
    IDLE = "idle"
    USUAL = "usual"


@dataclass(frozen=True)
class LoadAlone:
    """How much a verb without workers may read at once, and who comes first; each field is an option."""

    max_read_rate: Annotated[
        int | None,
        typer.Option(
            "--max-read-rate",
            metavar="BYTES",
            click_type=Size(1, INT64_MAX),
            help="Bytes (or 64MiB) that the run may read in a second from files, all workers and disks together (docs/gentle.md). "
            "Default: beside a live broker 67108864 (64 MiB) for each disk, else any number.",
        ),
    ] = None
    priority: Annotated[
        Priority,
        typer.Option(
            "--priority",
            show_default=False,
            help="auto: idle beside a live broker, else usual. idle: behind all others, for processor, disk and memory. usual: as the "
            "shell has it. Default: auto.",
        ),
    ] = Priority.AUTO
    max_memory: Annotated[
        int | None,
        typer.Option(
            "--max-memory",
            metavar="BYTES",
            click_type=Size(MEMORY_BYTES_MIN, INT64_MAX),
            help="Memory (bytes, or 2GiB) that the run may hold, with all workers; fewer are started where they have no room, and a "
            f"partition that needs more fails by itself. At least {MEMORY_BYTES_MIN}. Default: any number.",
        ),
    ] = None
    fill_page_cache: Annotated[
        bool,
        typer.Option(
            "--fill-page-cache",
            help="Let what is read stay in the page cache, where the next run finds it. Default: the page cache is left as it was.",
        ),
    ] = False

    @property
    def readers_per_disk(self) -> int | None:
        """Workers that read from one disk at once; None where that is not asked for."""
        return None

    def limits(self) -> AbstractContextManager[None]:
        """The verb reads so inside, before it is known whether a broker is at work."""
        from snaprebuild.storage.io_limits.policy import Manners, reading_so

        return reading_so(
            Manners(
                leaves_page_cache=not self.fill_page_cache,
                bytes_per_second=self.max_read_rate,
                stands_last=self.priority is Priority.IDLE,
                readers_per_disk=self.readers_per_disk,
                max_memory_bytes=self.max_memory,
                minds_brokers=True,
                priority_is_open=self.priority is Priority.AUTO,
            )
        )


@dataclass(frozen=True)
class Load(LoadAlone):
    """The same for a verb with workers."""

    jobs_per_disk: Annotated[
        int | None,
        typer.Option(
            "--jobs-per-disk",
            metavar="N",
            click_type=WholeNumber(1, JOBS_MAX),
            help="Worker processes that read from one disk at once; without --jobs so many are started for each. Default: one where "
            "the disk has a spindle, else as many as --jobs.",
        ),
    ] = None

    @property
    def readers_per_disk(self) -> int | None:
        """As ``--jobs-per-disk``."""
        return self.jobs_per_disk
