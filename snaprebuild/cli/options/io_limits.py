"""The options of verbs that read segments, beside a live broker or not: how fast, how many at once, who comes first, what stays cached."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaprebuild.cli.options.common import INT64_MAX, JOBS_MAX, WholeNumber

if TYPE_CHECKING:
    from snaprebuild.storage.io_limits.policy import Manners

__all__ = ["GentleOptions", "Priority", "reads_gently", "reads_gently_alone"]


MEMORY_BYTES_MIN = 64 << 20
"""The command itself, and a block of a segment."""


class Priority(StrEnum):
    """Who comes first."""

    AUTO = "auto"
    IDLE = "idle"
    USUAL = "usual"


@dataclass(frozen=True)
class GentleOptions:
    """Each field is an option."""

    max_read_rate: Annotated[
        int | None,
        typer.Option(
            "--max-read-rate",
            metavar="BYTES",
            click_type=WholeNumber(1, INT64_MAX),
            help="Bytes that the run may read in a second from files, all workers and disks together (docs/gentle.md). Default: beside "
            "a live broker 67108864 (64 MiB) for each disk, else any number.",
        ),
    ] = None
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
            click_type=WholeNumber(MEMORY_BYTES_MIN, INT64_MAX),
            help="Memory that the run may hold, with all workers; fewer are started where they have no room, and a partition that needs "
            f"more fails by itself. At least {MEMORY_BYTES_MIN}. Default: any number.",
        ),
    ] = None
    fill_page_cache: Annotated[
        bool,
        typer.Option(
            "--fill-page-cache",
            help="Let what is read stay in the page cache, where the next run finds it. Default: the page cache is left as it was.",
        ),
    ] = False

    def manners(self) -> Manners:
        """How the run reads, before it is known whether a broker is at work."""
        from snaprebuild.storage.io_limits.policy import Manners

        return Manners(
            leaves_page_cache=not self.fill_page_cache,
            bytes_per_second=self.max_read_rate,
            stands_last=self.priority is Priority.IDLE,
            readers_per_disk=self.jobs_per_disk,
            max_memory_bytes=self.max_memory,
            minds_brokers=True,
            priority_is_open=self.priority is Priority.AUTO,
        )


def reads_gently(verb: Callable[..., None]) -> Callable[..., None]:
    """Gives a verb these options behind its own, and has it carried out so: it need not know of them."""
    return _with_options(verb, tuple(inspect.signature(GentleOptions, eval_str=True).parameters.values()))


def reads_gently_alone(verb: Callable[..., None]) -> Callable[..., None]:
    """As ``reads_gently``, for a verb without workers."""
    options = inspect.signature(GentleOptions, eval_str=True).parameters
    return _with_options(verb, tuple(each for name, each in options.items() if name != "jobs_per_disk"))


def _with_options(verb: Callable[..., None], options: tuple[inspect.Parameter, ...]) -> Callable[..., None]:
    @functools.wraps(verb)
    def with_options(*first: Any, **given: Any) -> None:
        asked = GentleOptions(**{each.name: given.pop(each.name) for each in options})
        from snaprebuild.storage.io_limits.policy import reading_so

        with reading_so(asked.manners()):
            verb(*first, **given)

    own = inspect.signature(verb, eval_str=True).parameters.values()
    behind = (each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options)
    with_options.__signature__ = inspect.Signature([*own, *behind])  # type: ignore[attr-defined]
    return with_options
