"""Plans and rebuilds as JSON documents and as tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import asdict, replace

from snaprebuild.broker.remote_readiness import not_ready_text
from snaprebuild.broker.status import Status, fate_groups
from snaprebuild.cli.answer import expiry_words, given_words, none_read, unless_unread
from snaprebuild.cli.options.kafka_release import release_words
from snaprebuild.cli.printing import is_verbose, print_line, print_table, print_text, print_undo
from snaprebuild.cli.render.shared_parts import cache_use, excused_text, inputs_of, needs_of, source_verdict
from snaprebuild.cli.render.status import OUT_DIRECTORY, fate_sentence, faults_text, words_after
from snaprebuild.cli.table import counts_text, range_text
from snaprebuild.cli.value_text import labels_of, shown, size_text, time_text
from snaprebuild.cli.view import AGAIN, Advice, Answer, View
from snaprebuild.documents.plan import NotPlanned, PlanDocument, PlannedPartition
from snaprebuild.documents.rebuild import Rebuild, RebuildTotals, RebuiltPartition
from snaprebuild.findings import Finding, FindingCause, Severity, choose_form, exit_code_of, first_of, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.shell_words import option_words, program_command, shell_word
from snaprebuild.snapshots.destination.boundary_result import NOT_DONE, BoundaryAction
from snaprebuild.snapshots.destination.destinations import NextToBroker
from snaprebuild.snapshots.plan.plan_model import (
    PartitionPlan,
    Plan,
    PlanCounts,
    concerns_of_plan,
    fates_against_writing,
    plan_counts,
    topics_left_out,
)
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildResult, is_not_judged
from snaprebuild.snapshots.rebuild.results_file import write_results
from snaprebuild.snapshots.source.boundary_needs import LeftOut, LeftOutReason, NeedTotals, reason_not_needed
from snaprebuild.storage.local.hard_links import Mount, mount_of
from snaprebuild.storage.store import is_object

__all__ = [
    "OLD_BROKER_DELETES",
    "RebuildPlanView",
    "RebuildView",
    "answer_with_start",
    "expiration_words",
    "judged_words",
    "may_be_2_7",
    "plan_document",
    "rebuild_document",
    "request_words",
    "run_text",
    "stage_words",
]

OLD_BROKER_DELETES = " Kafka 2.7 and older delete such files within a minute."
"""A sentence after a blank, where new snapshots are in the log directories of what may be such a broker."""

NOT_JUDGED = "not judged"
"""In place of a confidence: the replay proves nothing about an existing file."""

NOT_PLANNED = frozenset({"not-known-to-be-due"})
"""Codes of findings that the text of a plan names."""


class RebuildPlanView(View):
    """The result of ``plan``."""

    codes_in_table = NOT_PLANNED

    def __init__(self, plan: Plan, again: Sequence[str], saved: str | None) -> None:
        """Takes the plan, the words of the command line that give its request, and the file that it was saved in."""
        super().__init__(plan.findings)
        self._plan = plan
        self._again = again
        self._saved = saved
        self._planned = plan_counts(plan)

    def document(self) -> PlanDocument:
        return plan_document(self._plan, self._planned)

    def print_table(self) -> None:
        print_plan(self._plan)
        _print_readiness_notes(self._plan)

    def answer(self) -> Answer:
        return answer_with_start(
            plan_answer(self._plan, self._planned, self._again, self._saved), self._plan.partitions, self._plan
        )


class RebuildView(View):
    """The result of ``rebuild`` and ``stage``."""

    codes_in_table = NOT_PLANNED

    def __init__(
        self,
        result: RebuildResult,
        findings: Sequence[Finding],
        again: Sequence[str],
        *,
        cache: str | None = None,
        results_file: str | None = None,
    ) -> None:
        """Takes the result.

        Args:
            result: of the run.
            findings: of the result, and of the cluster about it.
            again: words of the command line that give the request, without those of a dry run.
            cache: directory of the effects of earlier runs; None without one.
            results_file: file of ``--results``; None without one.
        """
        super().__init__(findings)
        self._result = result
        self._again = again
        self._cache = cache
        self._results_file = results_file

    def document(self) -> Rebuild:
        return rebuild_document(self._result, self._cache)

    def print_table(self) -> None:
        print_rebuild(self._result)
        _print_readiness_notes(self._result.plan)

    def answer(self) -> Answer:
        plans = [partition.plan for partition in self._result.partitions]
        return answer_with_start(rebuild_answer(self._result, self._again), plans, self._result.plan)

    def write_files(self) -> None:
        if self._results_file is not None:
            write_results(self._result, self._results_file)


def answer_with_start(answer: Answer, plans: Sequence[PartitionPlan], plan: Plan) -> Answer:
    """An answer, preceded by the worst fate of the next start, and by the topics that are left out because they have no id.

    Where something was left out for a fate, the next command shows all of them. Where nothing is planned, it is that of the fate.

    Args:
        answer: of a verb that writes, with the words of its next command.
        plans: of its partitions.
        plan: that they belong to.
    """
    text, following = answer
    not_ready = not_ready_text(topics_left_out(plan, plans))
    text = f"{not_ready} {text}".lstrip()
    groups = fate_groups(concerns_of_plan(plan, plans))
    if not groups:
        return text, following
    selected = _selected(plan.request)
    if fates_against_writing(plans):
        following = ["scan", *selected]
    elif not any(each.all_boundaries for each in plans):
        following = words_after(groups[0], selected)
    others = f" Also: {pluralize(len(groups) - 1, 'other fate')}." if len(groups) > 1 else ""
    return f"{fate_sentence(groups[0])}{others} {text}", following


def _print_readiness_notes(plan: Plan) -> None:
    """Prints the steps that come before remote storage is switched on. Notes are not on stderr, and these must not be missed."""
    for each in plan.readiness:
        if each.severity is Severity.NOTE:
            print_text(f"Note: {each.message}.")


def plan_document(plan: Plan, planned: PlanCounts) -> PlanDocument:
    """The JSON document of a plan with its numbers."""
    rate = plan.rate_bytes_per_second
    return PlanDocument(
        request=plan.request.document,
        as_of_ms=plan.clock.as_of_ms,
        expiration_ms=plan.clock.expiration_ms,
        min_read_bytes=plan.min_read_bytes,
        max_read_bytes=plan.max_read_bytes,
        rate_bytes_per_second=None if rate is None else round(rate),
        estimated_seconds=None if rate is None else round(plan.min_read_bytes / rate, 3),
        retention_ms=plan.retention_ms,
        retention_source=plan.retention_source,
        totals=plan.counts,
        planned=planned,
        partitions=[_partition_plan(partition) for partition in plan.partitions],
        status=plan.status.word.value,
        counts=plan.status.counts,
    )


def _partition_plan(plan: PartitionPlan) -> PlannedPartition:
    segments = plan.source.directory.segments
    replay_from_offset = None
    if plan.boundaries:
        replay_from_offset = segments[plan.replay_index].base_offset
    return PlannedPartition(
        **needs_of(plan.source, plan.needs),
        target=plan.target,
        segments=len(segments),
        log_start_offset=plan.source.log_start_offset,
        log_end_offset=plan.log_end_offset,
        replay_from_offset=replay_from_offset,
        replay_reason=plan.replay_reason,
        min_read_bytes=plan.min_read_bytes,
        max_read_bytes=plan.max_read_bytes,
        retention_frees_ms=plan.retention_frees_ms,
        fault=plan.fault,
        boundaries=plan.all_boundaries,
        not_planned=_not_planned(plan),
        verdict=source_verdict(plan.verdict),
    )


def _not_planned(plan: PartitionPlan) -> list[NotPlanned]:
    return [NotPlanned(offset=offset, action=_action_of(reason).value, reason=reason.text) for offset, reason in plan.not_planned]


def _action_of(reason: LeftOutReason) -> BoundaryAction:
    """Refused if a broker may need the snapshot, else skipped."""
    return BoundaryAction.REFUSED if reason.may_be_needed else BoundaryAction.SKIPPED


def plan_answer(plan: Plan, planned: PlanCounts, again: Sequence[str], saved: str | None) -> Answer:
    """The answer, and what comes next.

    Args:
        plan: that was made.
        planned: its numbers.
        again: words of the command line that give the request.
        saved: file that the plan was saved in.
    """
    busy = [partition for partition in plan.partitions if partition.all_boundaries]
    partitions = pluralize(len(plan.partitions), "partition")
    if not plan.partitions:
        return none_read(plan.findings)
    faults = faults_text(plan.status)
    if not busy:
        nothing = _nothing_text(plan.counts.missing, plan.findings, partitions)
        return f"{faults}{nothing[0].upper()}{nothing[1:]}.", _after_nothing(plan)
    read = size_text(plan.min_read_bytes) + (
        f" to {size_text(plan.max_read_bytes)}" if plan.max_read_bytes > plan.min_read_bytes else ""
    )
    seconds = ""
    if plan.rate_bytes_per_second:
        seconds = f" in about {max(plan.min_read_bytes / plan.rate_bytes_per_second, 0.1):.1f} s"
    answer = f"{faults}{_counts_text(plan.request, planned)} in {len(busy)} of {partitions}; {read} to read{seconds}."
    doubt = _words_of_doubt(plan, plan.status)
    if doubt:
        return answer, doubt
    if _blocking_log_dirs(plan):
        return _with_stage(plan, answer, again)
    return answer, [_verb(plan.request), *(again if saved is None else ["--plan", saved])]


def _counts_text(request: RebuildRequest, counts: PlanCounts) -> str:
    """The numbers of a plan: what is certain, and what only the replay shows."""
    does = "stage" if request.destination.installed_later else "write"
    parts = []
    if counts.to_write:
        most = "" if counts.writes_at_least == counts.to_write else "up to "
        parts.append(f"{most}{pluralize(counts.to_write, 'snapshot')} to {does}")
    if counts.to_compare:
        what = str(counts.to_compare) if parts else pluralize(counts.to_compare, "snapshot")
        wrong = ", and to set aside and write if wrong," if request.set_aside else ""
        if request.destination.installed_later:
            wrong = ", and to stage anew if changed,"
        parts.append(f"{what} to compare{wrong}")
    return ", ".join(parts)


def _words_of_doubt(plan: Plan, status: Status) -> list[str]:
    """``verify``, where a snapshot is wrong or suspect, and the request does not replace wrong ones; else no words.

    Nothing is built next to such a snapshot before ``verify`` has shown what is wrong with it.
    """
    if plan.request.set_aside or not plan.request.destination.is_for_broker or not (status.wrong or status.suspect):
        return []
    return ["verify", *judged_words(plan.request)]


def _after_nothing(plan: Plan) -> Sequence[str] | Advice:
    """The next command where nothing can be written: `scan` would find the same, and propose the same plan."""
    if any(map(_is_rejected, plan.partitions)):
        return ["cluster", "source", *request_words(plan.request)]
    doubt = _words_of_doubt(plan, plan.status)
    if doubt:
        return doubt
    if not plan.counts.missing:
        return ["verify", *judged_words(plan.request)]
    reasons = {reason.kind for partition in plan.partitions for _, reason in partition.not_planned if reason.may_be_needed}
    if reasons == {LeftOut.STOPPED_WITHOUT}:
        return ["before-start", *start_words(plan.request)]
    if reasons == {LeftOut.NO_BROKER_FILES}:
        log_dir = plan.partitions[0].source.log_dir.path
        return ["plan", *judged_words(plan.request), "--out", shown(os.path.join(os.path.dirname(log_dir), OUT_DIRECTORY))]
    return AGAIN if exit_code_of(plan.findings) else []


def _verb(request: RebuildRequest) -> str:
    """The command that carries a plan out."""
    return "stage" if request.destination.installed_later else "rebuild"


def _is_next_to_broker(request: RebuildRequest) -> bool:
    return isinstance(request.destination, NextToBroker)


def _live_log_dirs(plan: Plan) -> list[str]:
    """Log directories of a live broker."""
    return [finding.path for finding in plan.findings if finding.cause is FindingCause.LIVE_BROKER]


def _blocking_log_dirs(plan: Plan) -> list[str]:
    """Log directories of a live broker in which a run would be refused."""
    return _live_log_dirs(plan) if plan.request.destination.locks_log_dirs else []


def _with_stage(plan: Plan, answer: str, again: Sequence[str]) -> Answer:
    """The answer where a live broker holds a log directory, and the command that builds everything next to it."""
    held = _blocking_log_dirs(plan)
    stages = _stages(held)
    rehearsal = ["before-start", "--dry-run", *start_words(plan.request)]
    answer = f"{answer} A live broker holds {first_of([shown(each) for each in held])}"
    if plan.request.set_aside:
        return f"{answer}: only its next start can replace wrong snapshots.", rehearsal
    if stages:
        # `stage` takes no plan of another verb, and no boundaries but the missing ones.
        words = stage_words(plan.request) if "--plan" in again or "--boundaries" in again else again
        return f"{answer}.", ["stage", *words, *stages]
    # Staged files are linked, so they must be on the file system of the log directory, and outside it.
    return f"{answer}. A log directory is a file system of its own: write at the next start.", rehearsal


def _is_rejected(plan: PartitionPlan) -> bool:
    """Whether the replica may be no source of snapshots."""
    return plan.fault is not None and plan.verdict is not None and plan.fate is None


def request_words(request: RebuildRequest) -> list[str]:
    """The words of the command line that select the partitions of a request."""
    words = [*map(shown, request.paths)]
    if request.server_properties:
        words += option_words("--server-properties", shown(request.server_properties))
    words += [word for pattern in request.topics for word in option_words("--topic", pattern)]
    words += [word for number in sorted(request.partitions) for word in ("--partition", str(number))]
    words += [word for name in sorted(request.topic_partitions) for word in option_words("--topic-partition", name)]
    return [*words, *given_words()]


def stage_words(request: RebuildRequest) -> list[str]:
    """The words of `stage` for a request, but for its time: what expires by then is judged anew."""
    usual = RebuildRequest(request.paths)
    words = _selected(request)
    if (request.offset_from, request.offset_to) != (None, None):
        first = "" if request.offset_from is None else request.offset_from
        last = "" if request.offset_to is None else request.offset_to
        words += ["--offsets", f"{first}:{last}"]
    if request.replay_from != usual.replay_from:
        words += ["--replay-from", request.replay_from]
    if not request.check_crc:
        words += ["--crc", "skip"]
    if request.drop_expired:
        words += ["--drop-expired"]
    if request.allow_unproven:
        words += ["--allow-unproven"]
    if request.accept_topic_id_zero:
        words += ["--accept-topic-id-zero"]
    words += expiration_words(request)
    if request.metadata is not None:
        words += ["--metadata", shown(request.metadata)]
    return words


def _only_held(request: RebuildRequest, held: Sequence[str]) -> RebuildRequest:
    """The request without the log directories that no broker holds: a run next to a broker is refused there."""
    paths = list[str]()
    for log_dir in held:
        inside = [path for path in request.paths if path == log_dir or path.startswith(os.path.join(log_dir, ""))]
        paths += inside or [log_dir]
    return replace(request, paths=tuple(paths), server_properties=None)


def start_words(request: RebuildRequest) -> list[str]:
    """The words of `before-start` for the directories and topics of a request. It takes no single partitions."""
    whole = [*_selected(replace(request, partitions=())), *expiration_words(request)]
    return [*whole, "--set-aside"] if request.set_aside else whole


def _selected(request: RebuildRequest) -> list[str]:
    """The words of `scan` and `verify` on what a request selects, for the same next start."""
    return [*request_words(request), *release_words(request.kafka_release)]


def judged_words(request: RebuildRequest) -> list[str]:
    """The words of `verify` and `plan` on what a request selects, at the time of the request, so that they judge as it does."""
    expiry = expiry_words()
    if given_words("plan"):
        expiry = ["--as-of", str(request.as_of_ms)]
    if "--expiration-ms" not in expiry:
        expiry += expiration_words(request)
    return [*_selected(request), *expiry]


def expiration_words(request: RebuildRequest) -> list[str]:
    """The words of the expiration that a request has; none where it is the broker's."""
    return [] if request.expiration_ms is None else ["--expiration-ms", str(request.expiration_ms)]


def _class_text(snapshot_class: SnapshotClass) -> str:
    """The word for people; with ``-v`` the class."""
    return snapshot_class.value if is_verbose() else snapshot_class.confidence


def print_plan(plan: Plan) -> None:
    """A table of partitions, the most expensive first, and remarks."""
    busy = [partition for partition in plan.partitions if partition.all_boundaries]
    labels = labels_of(partition.source for partition in plan.partitions)
    has_dates = any(partition.retention_frees_ms is not None for partition in busy)
    rows = []
    for partition in sorted(busy, key=lambda each: -each.min_read_bytes):
        base = partition.source.directory.segments[partition.replay_index].base_offset
        boundaries = partition.all_boundaries
        classes = Counter(_class_text(boundary.expected_class) for boundary in boundaries)
        frees = _retention_date(partition.retention_frees_ms, plan.clock.as_of_ms)
        row = [labels[partition.source.directory.path], len(boundaries), base, size_text(partition.min_read_bytes)]
        rows.append([*row, counts_text(classes), *([frees] if has_dates else []), partition.replay_reason])
    if rows:
        dates = ["retention deletes it"] if has_dates else []
        columns = ["partition", "snapshots", "replay from", "to read", "at best", *dates, "replay reason"]
        print_table(None, columns, rows, right=("snapshots", "replay from", "to read"), drop=("replay from", "to read"))
    if rows:
        _print_retention(plan, busy)
    _print_not_planned(plan)


def _retention_date(frees_ms: int | None, now_ms: int) -> str:
    if frees_ms is None:
        return "-"
    return f"{time_text(frees_ms)}, past" if frees_ms <= now_ms else time_text(frees_ms)


def _print_retention(plan: Plan, busy: Sequence[PartitionPlan]) -> None:
    """The effect of retention on the segments without a snapshot; a date only where it is known that remote storage is off."""
    tiered = sum(partition.source.is_tiered for partition in busy)
    if tiered:
        print_text(
            f"Remote storage is on for {pluralize(tiered, 'partition')}: a broker keeps segments that are not uploaded. But each failed "
            "upload announces a copy. When retention.* expires that copy, it raises the log start offset, and the segments below are lost. "
            "With remote.log.copy.disable=true (3.9) retention.* deletes them, uploaded or not."
        )
    dates = [partition.retention_frees_ms for partition in busy if partition.retention_frees_ms is not None]
    past = sum(date <= plan.clock.as_of_ms for date in dates)
    if past:
        count = pluralize(past, "of these dates is", "of these dates are")
        print_text(
            f"Remote storage is off, and {count} past, by {plan.retention_source}. The broker deletes these segments minutes after its "
            "start. They need no snapshot."
        )
    if len(dates) > past:
        print_text(
            f"Remote storage is off: retention deletes these segments at that date, by {plan.retention_source}. You can wait for it "
            "instead."
        )
    if not dates and tiered < len(busy) and not plan.is_remote_storage_off:
        reason = "it is unknown whether remote storage is on (--server-properties shows it)"
        if plan.request.server_properties is not None:
            reason = "the broker has remote storage, and whether remote.storage.enable is on for these topics is unknown"
        print_text(f"retention: no date, because {reason}.")


def _print_not_planned(plan: Plan) -> None:
    """Counts of boundaries that have no snapshot and get none, by reason, and of partitions that could not be planned."""
    labels = labels_of(partition.source for partition in plan.partitions)
    reasons: dict[tuple[BoundaryAction, str], list[str]] = {}
    for partition in plan.partitions:
        for _, reason in partition.not_planned:
            action = _action_of(reason)
            reasons.setdefault((action, reason.text), []).append(labels[partition.source.directory.path])
    for (action, text), names in reasons.items():
        where = first_of(list(dict.fromkeys(names)))
        print_text(f"{action}: {pluralize(len(names), 'boundary', 'boundaries')} of {where}: {text}")
    rejected = sum(_is_rejected(partition) for partition in plan.partitions)
    if rejected:
        print_text(
            f"refused: {pluralize(rejected, 'partition')} that may be no source; run `snaprebuild cluster source` (named on stderr)"
        )
    faults = sum(partition.fault is not None and partition.verdict is None for partition in plan.partitions)
    if faults:
        print_text(f"failed: {pluralize(faults, 'partition')} that cannot be read (named on stderr)")


def rebuild_document(result: RebuildResult, cache: str | None) -> Rebuild:
    """The JSON document of a rebuild, with the directory of the cache as it was given."""
    plan = result.plan
    needs = asdict(NeedTotals.of(partition.needs for partition in result.partitions))
    after = ", after `install`" if plan.request.destination.installed_later else ""
    return Rebuild(
        request=plan.request.document,
        as_of_ms=plan.clock.as_of_ms,
        expiration_ms=plan.clock.expiration_ms,
        dry_run=result.dry_run,
        receipt=result.receipt,
        staged_plan=result.staged_plan,
        cache=cache_use(cache, (partition.outcome.cache_hits for partition in result.partitions)),
        takes_effect="when a broker next loads the log, at its start" + after,
        totals=RebuildTotals(**needs, **result.totals, set_aside=result.set_aside, not_judged=result.not_judged),
        partitions=[_partition_result(partition) for partition in result.partitions],
        differences_not_listed=result.differences_not_listed,
        status=result.status.word.value,
        counts=result.status.counts,
    )


def _partition_result(result: PartitionResult) -> RebuiltPartition:
    source = result.plan.source
    segments = source.directory.segments
    replay_from_offset = None
    if result.boundaries and segments:
        replay_from_offset = segments[result.outcome.replay_index].base_offset
    return RebuiltPartition(
        **needs_of(source, result.needs),
        target=result.plan.target,
        inputs=inputs_of(source),
        log_start_offset=source.log_start_offset,
        log_end_offset=result.plan.log_end_offset,
        replay_from_offset=replay_from_offset,
        replay_reason=result.outcome.replay_reason,
        read_bytes=result.outcome.read_bytes,
        cache_hits=result.outcome.cache_hits,
        elapsed_seconds=round(result.outcome.elapsed_seconds, 4),
        boundaries=result.boundaries,
        not_planned=_not_planned(result.plan),
        verdict=source_verdict(result.plan.verdict),
    )


def rebuild_answer(result: RebuildResult, again: Sequence[str]) -> Answer:
    """The answer, and what comes next.

    Args:
        result: of the run.
        again: words of the command line that give the request, without those of a dry run.
    """
    if not result.partitions:
        return none_read(result.findings)
    return _next_of_run(result, f"{faults_text(result.status)}{run_text(result)}", _totals(result), again)


def run_text(result: RebuildResult) -> str:
    """Sentences about what a run did, or would do."""
    plan = result.plan
    totals = _totals(result)
    others = counts_text(_other_counts(result, totals))
    partitions = pluralize(len(result.partitions), "partition")
    written = totals[BoundaryAction.WRITTEN]
    actions = [[each.action for each in partition.boundaries] for partition in result.partitions]
    busy = sum(BoundaryAction.WRITTEN in each if written else bool(each) for each in actions)
    if busy:
        partitions = f"{busy} of {partitions}"
    answer = _title(result, written)
    if written:
        answer += f" in {partitions}{_in_place_of_wrong(result)}"
        if others:
            answer += f"; {others}"
    elif others:
        answer += f"; {others} in {partitions}"
    else:
        answer += f"; {_nothing_text(plan.counts.missing, plan.findings, partitions)}"
    answer += "."
    answer += f"{_unsound_text(result)}{_not_judged_text(result)}{_excused_text(result)}"
    if written and plan.request.destination.locks_log_dirs:
        answer += f" The new {choose_form(written, 'one takes', 'ones take')} effect when the broker next starts."
        if may_be_2_7(plan):
            answer += OLD_BROKER_DELETES
    return answer


def _next_of_run(result: RebuildResult, answer: str, totals: Counter[str], again: Sequence[str]) -> Answer:
    plan = result.plan
    refused = totals[BoundaryAction.REFUSED]
    failed = totals[BoundaryAction.FAILED]
    doubt = _words_of_doubt(plan, result.status)
    if doubt:
        return answer, doubt
    if result.dry_run:
        if (totals[BoundaryAction.WOULD_WRITE] or refused) and _blocking_log_dirs(plan):
            return _with_stage(plan, answer, again)
        if totals[BoundaryAction.WOULD_WRITE]:
            return answer, [_verb(plan.request), *again, *given_words("receipt")]
        return answer, _after_no_file(result, is_given_up=bool(refused or failed))
    if result.staged_plan is not None:
        install = ("install", "--plan", shown(result.staged_plan))
        if _live_log_dirs(plan):
            return answer, Advice("stop the broker", install)
        return f"{answer} Install them before the broker starts.", install
    if refused and _blocking_log_dirs(plan):
        return _with_stage(plan, answer, again)
    if not totals[BoundaryAction.WRITTEN] or refused or failed:
        return answer, _after_no_file(result, is_given_up=bool(refused or failed))
    if result.receipt is None or _in_store(result):
        return answer, []
    return answer, ["verify", "--written-by", shown(result.receipt)]


def _after_no_file(result: RebuildResult, *, is_given_up: bool) -> Sequence[str] | Advice:
    """The next command after a run that wrote nothing, or not everything."""
    if any(_is_rejected(partition.plan) for partition in result.partitions):
        return ["cluster", "source", *request_words(result.plan.request)]
    if is_given_up:
        # Nobody can write to the place, or no replay proves more: another look finds the same.
        return AGAIN
    if not any(partition.boundaries for partition in result.partitions):
        return _after_nothing(result.plan)
    if not result.plan.request.destination.is_for_broker:
        # All that was asked for is there.
        if result.status.wrong or result.status.suspect:
            return ["verify", *judged_words(result.plan.request)]
        return []
    return ["verify", *judged_words(result.plan.request)]


def _other_counts(result: RebuildResult, totals: Counter[str]) -> dict[str, int]:
    """The results besides written snapshots, in the words of the plan."""
    counts = {action: count for action, count in totals.items() if action != BoundaryAction.WRITTEN}
    aside = result.set_aside
    if result.dry_run and aside:
        counts[BoundaryAction.WOULD_WRITE] -= aside
        counts["would be set aside and written"] = aside
    return counts


def _in_place_of_wrong(result: RebuildResult) -> str:
    aside = result.set_aside
    if not aside:
        return ""
    of_them = "" if result.totals.get(BoundaryAction.WRITTEN) == aside else f"{aside} of them "
    return f", {of_them}in the place of {choose_form(aside, 'a wrong one', 'wrong ones')}"


def _not_judged_text(result: RebuildResult) -> str:
    count = result.not_judged
    if not count:
        return ""
    return f" {pluralize(count, 'existing snapshot')} cannot be judged, and {choose_form(count, 'is', 'are')} left as before."


def _excused_text(result: RebuildResult) -> str:
    comparisons = (boundary.comparison for partition in result.partitions for boundary in partition.boundaries)
    text = excused_text((each for each in comparisons if each is not None), result.plan.clock.as_of_ms)
    return f" {text}." if text else ""


def _stages(held: Sequence[str]) -> list[str]:
    """``--to`` for each file system, next to the first log directory of a live broker there; empty if one would be on another one."""
    if any(os.path.ismount(log_dir) for log_dir in held):
        return []
    directories: dict[Mount, str] = {}
    for parent in map(os.path.dirname, held):
        directories.setdefault(mount_of(parent), os.path.join(parent, "snaprebuild-staged"))
    return [word for directory in directories.values() for word in ("--to", shown(directory))]


def _totals(result: RebuildResult) -> Counter[str]:
    return Counter(boundary.action for partition in result.partitions for boundary in partition.boundaries)


def _in_store(result: RebuildResult) -> bool:
    return any(is_object(partition.plan.target) for partition in result.partitions)


def print_rebuild(result: RebuildResult) -> None:
    """A table of partitions, and what else happened to the plan."""
    _print_ways_around_the_lock(result)
    rows = []
    labels = labels_of(partition.plan.source for partition in result.partitions)
    for partition in sorted(result.partitions, key=lambda each: not any(one.action in NOT_DONE for one in each.boundaries)):
        if not partition.boundaries:
            continue
        actions = Counter(boundary.action.value for boundary in partition.boundaries)
        is_in_place = result.plan.request.destination.writes_into_log_dirs
        classes: Counter[str] = Counter()
        for each in partition.boundaries:
            if each.snapshot_class is not None:
                is_shown = not (is_in_place and is_not_judged(each))
                classes[_class_text(each.snapshot_class) if is_shown else NOT_JUDGED] += 1
        offsets = range_text([boundary.offset for boundary in partition.boundaries])
        entries = max((boundary.entries or 0 for boundary in partition.boundaries), default=0)
        what = counts_text(classes) or "-"
        read = size_text(partition.outcome.read_bytes)
        target = shown(partition.plan.target)
        label = labels[partition.plan.path]
        rows.append((label, offsets, counts_text(actions), what, entries, read, target))
    if rows:
        columns = ("partition", "boundaries", "done", "confidence", "producers", "read", "directory")
        print_table(None, columns, rows, right=("producers", "read"), drop=("read", "producers", "boundaries"))
    _print_not_planned(result.plan)
    aside = sum(boundary.set_aside_name is not None for partition in result.partitions for boundary in partition.boundaries)
    if aside:
        print_text(f"{pluralize(aside, 'wrong snapshot')} set aside next to the new one, as <offset>.snapshot.set-aside.<number>")
    if result.staged_plan is not None:
        _print_staged_only(result)
    if _is_next_to_broker(result.plan.request):
        for running in dict.fromkeys(each.message for each in result.plan.findings if each.cause is FindingCause.WHILE_BROKER_RUNS):
            print_text(f"{running[0].upper()}{running[1:]}.")
    if result.receipt is not None and _in_store(result):
        print_text(f"receipt: {shown(result.receipt)}")
    else:
        print_undo(result.receipt)


def _print_staged_only(result: RebuildResult) -> None:
    """Which of the staged snapshots `install` does not link, so that their number is that of `plan`."""
    boundaries = [(partition.plan.source, each) for partition in result.partitions for each in partition.plan.all_boundaries]
    states = sum(each.exists for _, each in boundaries)
    if states:
        there = "1 of them exists" if states == 1 else f"{states} of them exist"
        file = choose_form(states, "its staged copy", "their staged copies")
        print_text(f"{there} in the log directory already. `install` starts from {file} when it replays segments rolled later.")
    after_stop = [
        each
        for source, each in boundaries
        if not each.exists and reason_not_needed(source, each.offset, is_log_end=each.is_log_end) is not None
    ]
    if after_stop:
        count = len(after_stop)
        subject = "1 of them is" if count == 1 else f"{count} of them are"
        pronoun = choose_form(count, "it", "them")
        print_text(f"{subject} for a clean stop: after the unclean one the broker makes {pronoun} itself at its start.")
    print_text("Nothing was written to the log directories.")


def _print_ways_around_the_lock(result: RebuildResult) -> None:
    """Other ways than to stage, where a broker in the log directory refused every snapshot."""
    request = result.plan.request
    held = _live_log_dirs(result.plan)
    if not held or _is_next_to_broker(request) or set(result.totals) != {BoundaryAction.REFUSED}:
        return
    if not may_be_2_7(result.plan):
        again = program_command(["rebuild", *judged_words(_only_held(request, held)), "--broker-running"])
        print_line(f"  Broker 2.8 or newer?  {again}")
    lock = shell_word(os.path.join(shown(held[0]), ".lock"))
    print_line(f"  Broker stopped?       fuser -v {lock} shows what holds it. Do not delete it.")
    print_line("")


def may_be_2_7(plan: Plan) -> bool:
    """Whether a partition looks as a broker of 2.7 or older leaves it, which deletes such snapshots within a minute.

    Later brokers write ``partition.metadata``, unless their protocol is still older: then the release is unknown.
    """
    return any(partition.all_boundaries and not partition.source.directory.has_partition_metadata for partition in plan.partitions)


def _nothing_text(missing: int, findings: Iterable[Finding], partitions: str) -> str:
    """The result of a plan without a boundary.

    Args:
        missing: snapshots that are needed.
        findings: of the plan.
        partitions: how many there are, in words.
    """
    if missing:
        none = choose_form(missing, "it is not written", "none of them is written")
        return f"{pluralize(missing, 'snapshot is', 'snapshots are')} missing in {partitions}, and {none}"
    return f"{unless_unread('nothing to rebuild', findings)} in {partitions}"


def _title(result: RebuildResult, written: int) -> str:
    if result.dry_run:
        return "Dry run: nothing was written"
    done = "staged" if result.plan.request.destination.installed_later else "written"
    return f"{pluralize(written, 'snapshot')} {done}" if written else f"Nothing was {done}"


def _unsound_text(result: RebuildResult) -> str:
    """A file in ``--out`` looks like any other: its class is in this result alone."""
    if result.plan.request.destination.writes_into_log_dirs:
        return ""  # no such file is written there, and what was there before is left as it is
    unsound = sum(
        boundary.snapshot_class is SnapshotClass.UNSOUND
        and boundary.action in (BoundaryAction.WRITTEN, BoundaryAction.WOULD_WRITE, BoundaryAction.EQUAL)
        for partition in result.partitions
        for boundary in partition.boundaries
    )
    if not unsound:
        return ""
    return f" {pluralize(unsound, 'snapshot is', 'snapshots are')} UNSOUND: do not use {choose_form(unsound, 'it', 'them')}."
