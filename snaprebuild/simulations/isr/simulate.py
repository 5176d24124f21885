"""The work of ``simulate isr``: plays stories under modes of epochs, and says what of them is a finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from formats import limits
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, counted
from snaprebuild.simulations.isr.epoch_mode import Mode
from snaprebuild.simulations.isr.scenarios import Scene, Story, play
from snaprebuild.simulations.isr.search import SearchResult
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import Loss, StepError
from snaprebuild.storage.local.regular_file import read_small_file

__all__ = ["Played", "play_stories", "played_findings", "read_scenario", "search_findings"]


@dataclass(frozen=True, slots=True)
class Played:
    """A story that was played.

    Attributes:
        story: its steps.
        cluster: as it is at the end.
        scenes: what happened at each step.
    """

    story: Story
    cluster: Cluster
    scenes: tuple[Scene, ...]


def read_scenario(path: str) -> Story:
    """Steps of a file, as a story of its name.

    Raises:
        UsageError: there is no such file, or a line in it is no step.
        ReadFailedError: it cannot be read, or is larger than ``limits.STORY_BYTES_MAX``.
    """
    data = read_small_file(path, limits.STORY_BYTES_MAX)
    if data is None:
        raise UsageError("does not exist", path=path)
    story = Story(path, "", data.decode(errors="replace"))
    try:
        _ = story.steps
    except StepError as error:
        raise UsageError(str(error), path=path) from None
    return story


def play_stories(stories: Iterable[Story], modes: Sequence[Mode], min_insync_replicas: int) -> list[Played]:
    """Plays each under each mode."""
    played = []
    for story in stories:
        for mode in modes:
            cluster = Cluster(mode, min_insync_replicas=min_insync_replicas, tells=True)
            played.append(Played(story, cluster, tuple(play(cluster, story.steps))))
    return played


def played_findings(played: Iterable[Played], *, of_steps: bool) -> Iterator[Finding]:
    """One for each loss; what the KIP accepts is a note.

    Args:
        played: stories.
        of_steps: tell, too, how many steps could not happen.
    """
    for each in played:
        mode = each.cluster.mode
        for loss in each.cluster.losses:
            what = f"{counted(len(loss.records), 'committed record')} from offset {loss.first_offset} on"
            yield _of_loss(loss, each.story.name, f"{mode}: {what}, when broker {loss.leader} begins to lead")
        left_out = sum(not scene.happened for scene in each.scenes)
        if left_out and of_steps:
            message = f"{mode}: {counted(left_out, 'step')} left out, which could not happen"
            yield Finding("isr-step-left-out", Severity.NOTE, each.story.name, message)


def search_findings(found: Iterable[SearchResult]) -> Iterator[Finding]:
    """One for each mode and cause."""
    for result in found:
        for cause, each in result.found.items():
            lost = f"{result.losses[cause]} of {counted(result.histories, 'history', 'histories')}"
            shortest = f"the shortest has {counted(len(each.steps), 'step')}"
            yield _of_loss(each.loss, "--search", f"{result.mode}: committed records, in {lost}, of which {shortest}")


def _of_loss(loss: Loss, path: str, what: str) -> Finding:
    if loss.is_accepted:
        return Finding("isr-loss-accepted", Severity.NOTE, path, f"{what}, are lost ({loss.cause}), which KIP-903 accepts")
    return Finding("isr-loss", Severity.FINDING, path, f"{what}, are lost ({loss.cause})")
