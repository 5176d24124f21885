"""Installs as JSON documents and as tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from snaprebuild.cli.answer import given_words
from snaprebuild.cli.options.kafka_release import release_words
from snaprebuild.cli.printing import print_table, print_text, print_undo
from snaprebuild.cli.render.rebuild import (
    OLD_BROKER_DELETES,
    answer_with_start,
    expiration_words,
    judged_words,
    may_be_2_7,
    stage_words,
)
from snaprebuild.cli.render.status import faults_text
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.table import counts_text, middle_cut, range_text
from snaprebuild.cli.value_text import shown, size_text, time_text
from snaprebuild.cli.view import AGAIN, Advice, Answer, View
from snaprebuild.documents.common import ActionTotals
from snaprebuild.documents.install import Install, InstalledPartition, PhaseSeconds
from snaprebuild.findings import Finding, FindingCause, Severity, choose_form, first_of, pluralize
from snaprebuild.snapshots.destination.boundary_result import NOT_DONE, BoundaryAction
from snaprebuild.snapshots.plan.plan_model import fates_against_writing
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildResult
from snaprebuild.snapshots.staging.staged_plan import StagedPartition, StagedPlan
from snaprebuild.storage.partition_names import names_in

__all__ = ["InstallView"]

NAME_COLUMNS = 40
"""Columns of the name of a partition in a first line."""


class InstallView(View):
    """The result of ``install``."""

    def __init__(
        self,
        plan: StagedPlan,
        result: RebuildResult,
        phase_seconds: Mapping[str, float],
        *,
        deadline_seconds: int | None,
        starts_broker: bool,
    ) -> None:
        """Takes the result.

        Args:
            plan: that was installed.
            result: of the run.
            phase_seconds: of each phase.
            deadline_seconds: of ``--deadline``; None without one.
            starts_broker: the command of the broker follows, which has stdout: the answer goes to stderr, too.
        """
        super().__init__(result.findings)
        self._plan = plan
        self._result = result
        self._phase_seconds = phase_seconds
        self._deadline_seconds = deadline_seconds
        self._starts_broker = starts_broker
        self._staged = {partition.path: partition for partition in plan.partitions}

    def document(self) -> Install:
        plan = self._plan
        result = self._result
        assert plan.sha256 is not None, "it was loaded"
        return Install(
            plan=plan.path,
            plan_sha256=plan.sha256,
            staged_ms=plan.staged_ms,
            log_dirs=plan.log_dirs,
            dry_run=result.dry_run,
            deadline_seconds=self._deadline_seconds,
            receipt=result.receipt,
            takes_effect="when a broker next loads the log, at its start",
            phase_seconds=PhaseSeconds(**{phase: round(seconds, 4) for phase, seconds in self._phase_seconds.items()}),
            totals=ActionTotals(**result.totals),
            partitions=[_partition(self._staged[each.path], each) for each in result.partitions],
            status=result.status.word.value,
            counts=result.status.counts,
        )

    def answer(self) -> Answer:
        """Another line has the segments that were touched: a replay takes longer than links."""
        text, following = _answer(self._plan, self._result)
        lost = _lost_snapshots_text(self._result.findings)
        if lost:
            text = f"{lost} {text}"
        touched = _touched_text(self._result)
        if touched:
            text = f"{text}\n{touched}"
        plan = self._result.plan
        return answer_with_start((text, following), plan.partitions, plan)

    def print_table(self) -> None:
        """A table of partitions, then phases with their seconds, and where the receipt is."""
        result = self._result
        rows = [self._row(each) for each in sorted(result.partitions, key=_is_done)]
        if rows:
            columns = ("partition", "cannot upload", "boundaries", "done", "replayed", "directory")
            print_table(None, columns, rows, right=("cannot upload", "replayed"), drop=("replayed", "cannot upload", "boundaries"))
        phases = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in self._phase_seconds.items())
        total = sum(self._phase_seconds.values())
        print_text(f"staged at {time_text(self._plan.staged_ms)}; in {total:.2f} s: {phases}")
        if result.dry_run:
            print_text(f"SHA-256 of the plan: {self._plan.sha256}")
        if result.totals.get(BoundaryAction.WRITTEN):
            print_text("The staged files are the same files: they may be removed.")
        print_undo(result.receipt)

    def close(self) -> None:
        if self._starts_broker:
            print_on_stderr(f"snaprebuild: {self.answer()[0]}")

    def _row(self, result: PartitionResult) -> tuple[object, ...]:
        staged = self._staged[result.path]
        return (
            staged.topic_partition,
            size_text(staged.blocked_bytes),
            range_text([boundary.offset for boundary in result.boundaries]),
            counts_text(Counter(boundary.action.value for boundary in result.boundaries)),
            size_text(result.outcome.read_bytes),
            shown(result.path),
        )


def _is_only_late(result: RebuildResult, lacking: int) -> bool:
    """Whether the deadline alone kept snapshots from being installed, so that the same command installs them.

    Args:
        result: of the install.
        lacking: snapshots that were refused or that failed.
    """
    is_late = any(each.cause is FindingCause.DEADLINE_PASSED for each in result.findings)
    return is_late and not result.not_staged and not lacking


def _before_start(request: RebuildRequest, lost: Sequence[Finding]) -> list[str]:
    """The words of the command that writes the snapshots without which a start forgets producers, of every topic in their directories.

    Empty without any.
    """
    if not lost:
        return []
    log_dirs = dict.fromkeys(os.path.dirname(each.path) for each in lost)
    words = ["before-start", *map(shown, log_dirs)]
    if request.server_properties is not None:
        words = ["before-start", "--server-properties", shown(request.server_properties)]
    return [*words, *expiration_words(request), *release_words(request.kafka_release)]


def _install_words(plan: StagedPlan) -> list[str]:
    """The words of the command that installs the plan, with what this one was allowed to do, and which plan it was to be."""
    return ["install", "--plan", shown(plan.path), *given_words("require_plan", "accept_topic_id_zero")]


def _stage_words(request: RebuildRequest) -> list[str]:
    """The words of the command that stages what is missing now, with the consent of this one."""
    consent = [] if request.accept_topic_id_zero else given_words("accept_topic_id_zero")
    directories = [word for directory in request.destination.directories for word in ("--to", shown(directory))]
    return ["stage", *stage_words(request), *consent, *directories]


def _is_done(result: PartitionResult) -> bool:
    return not any(boundary.action in NOT_DONE for boundary in result.boundaries)


def _partition(staged: StagedPartition, result: PartitionResult) -> InstalledPartition:
    return InstalledPartition(
        **names_in(staged.topic_partition),
        path=staged.path,
        target=staged.target,
        blocked_bytes=staged.blocked_bytes,
        read_bytes=result.outcome.read_bytes,
        boundaries=result.boundaries,
        touched_segment=result.touched_segment if result.replayed_not_linked else None,
        replayed_not_linked=result.replayed_not_linked,
    )


def _touched_text(result: RebuildResult) -> str:
    touched = [each for each in result.partitions if each.replayed_not_linked]
    if not touched:
        return ""
    count = sum(len(each.replayed_not_linked) for each in touched)
    names = first_of(
        [f"{each.plan.source.directory.topic_partition} from the segment at {each.touched_segment}" for each in touched]
    )
    verb = "to replay" if result.dry_run else "replayed"
    return f"Note: {pluralize(count, 'snapshot')} {verb}, not linked: segments were touched since they were staged ({names})."


def _answer(plan: StagedPlan, result: RebuildResult) -> Answer:
    totals = Counter(result.totals)
    partitions = pluralize(len(result.partitions), "partition")
    written = totals[BoundaryAction.WRITTEN]
    others = counts_text({action: count for action, count in totals.items() if action != BoundaryAction.WRITTEN})
    faults = faults_text(result.status)
    if result.not_staged:
        partitions += f"; {pluralize(result.not_staged, 'missing snapshot')} not staged"
    request = plan.request
    doubt = ["verify", *judged_words(request)] if faults else []
    # For topics without an id every command is refused as this one was: first they need an id, or the consent of the operator.
    stage = AGAIN if result.status.topics_without_id else _stage_words(request)
    lost = _lost_at_start(result.findings)
    before_start = AGAIN if lost and result.status.topics_without_id else _before_start(request, lost)
    is_done = not result.not_staged and not any(totals[action] for action in NOT_DONE)
    if result.dry_run:
        answer = f"{faults}Dry run: nothing was changed; {others or 'nothing'} in {partitions}."
        install = tuple(_install_words(plan))
        # A refused snapshot is refused again: only another `stage` corrects that.
        if not totals[BoundaryAction.WOULD_WRITE] or totals[BoundaryAction.REFUSED]:
            return answer, doubt or before_start or ([] if is_done else stage)
        is_live = any(each.cause is FindingCause.LIVE_BROKER for each in result.findings)
        return answer, Advice("stop the broker", install) if is_live else install
    if written:
        answer = f"{faults}{pluralize(written, 'snapshot')} installed in {partitions}{f'; {others}' if others else ''}."
    else:
        answer = f"{faults}Nothing was installed; {others or 'nothing'} in {partitions}."
    is_judged = not any(each.cause is FindingCause.START_NOT_JUDGED for each in result.findings)
    if not is_judged:
        answer += " What the next start does was not judged: the deadline has passed."
    may_start = (
        not lost and not fates_against_writing(result.plan.partitions) and not any(fate.holds_broker for fate in result.plan.fates)
    )
    if doubt:
        return answer, doubt
    if before_start:
        return answer, before_start
    lacking = totals[BoundaryAction.REFUSED] + totals[BoundaryAction.FAILED]
    if may_start and is_judged and result.partitions and not is_done and not lacking:
        answer += " You can start the broker now."
    elif may_start and is_judged and is_done and written:
        answer += f" Start the broker: it then uses the new {choose_form(written, 'snapshot', 'snapshots')}."
        if may_be_2_7(result.plan):
            answer += OLD_BROKER_DELETES
    if not is_done:
        return answer, _install_words(plan) if _is_only_late(result, lacking) else stage
    return answer, [] if result.receipt is None else ["verify", "--written-by", shown(result.receipt)]


def _lost_at_start(findings: Iterable[Finding]) -> list[Finding]:
    """Findings about partitions whose producers the next start forgets, without topics that are never uploaded."""
    return [each for each in findings if each.cause is FindingCause.EMPTY_AT_NEXT_START and each.severity is not Severity.NOTE]


def _lost_snapshots_text(findings: Iterable[Finding]) -> str:
    """A sentence about the partitions whose producers the next start forgets; empty without any.

    Args:
        findings: of the command.
    """
    lost = _lost_at_start(findings)
    if not lost:
        return ""
    name = middle_cut(os.path.basename(lost[0].path), NAME_COLUMNS)
    others = f" and {pluralize(len(lost) - 1, 'other')}" if len(lost) > 1 else ""
    return f"The start forgets the producers of {name}{others}."
