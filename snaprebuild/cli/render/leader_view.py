"""Results about a leader, for which its directory and remote storage are read: its offsets, what serves a fetch, how a follower starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.broker.status import counted_status
from snaprebuild.cli.answer import COPIES, given_words, selects_nothing
from snaprebuild.cli.printing import print_table, print_text
from snaprebuild.cli.render.status import LIVE_UNKNOWN, answer_lines, faults_text, judgement_lines, nothing_read
from snaprebuild.cli.value_text import labels_of, size_text
from snaprebuild.cli.view import Answer, View
from snaprebuild.findings import Finding, pluralize, unread_paths
from snaprebuild.followers.fetch_path import FollowerFetchPath, RecordDeletion
from snaprebuild.followers.leader_view import ViewedPartition
from snaprebuild.followers.list_offsets import SpecialTimestamp
from snaprebuild.followers.offsets import CurrentLeaderEpoch, FollowerOffsets, OffsetAnswer
from snaprebuild.followers.plan import FollowerPlan, PlannedBootstrap, ReplicationShare
from snaprebuild.snapshots.last_stable import KnownOffset
from snaprebuild.snapshots.source.source import Source

__all__ = ["FollowerFetchPathView", "FollowerOffsetsView", "FollowerPlanView"]

NAMES = {
    int(SpecialTimestamp.LATEST): "latest",
    int(SpecialTimestamp.EARLIEST): "earliest",
    int(SpecialTimestamp.MAX_TIMESTAMP): "max timestamp",
    int(SpecialTimestamp.EARLIEST_LOCAL): "earliest local",
    int(SpecialTimestamp.LATEST_TIERED): "latest tiered",
    int(SpecialTimestamp.EARLIEST_PENDING_UPLOAD): "pending upload",
}


# ---------------------------------------------------------------------------------------------------------------- every partition


def _labels(source: Source, partitions: Sequence[ViewedPartition]) -> dict[str, str]:
    """Names of the partitions in tables, by path."""
    ids = {each.path: None if each.topic_id is None else uuid_from_text(each.topic_id) for each in partitions}
    return labels_of((each for each in source.partitions if each.directory.path in ids), ids)


def _offset_text(known: KnownOffset | None) -> str:
    """An offset for a person, with a star where it is assumed."""
    if known is None:
        return "-"
    return f"{known.offset}{'*' if known.assumed else ''}"


def _offsets_by_name(view: ViewedPartition) -> dict[str, KnownOffset | CurrentLeaderEpoch | None]:
    """The offsets of a view that no option of the verb replaces, by their names in tables."""
    return {
        "log start": view.log_start,
        "local start": view.local_log_start,
        "highest remote": view.highest_remote,
        "log end": view.log_end,
    }


def _print_assumed(used: Iterable[tuple[ViewedPartition, Mapping[str, KnownOffset | CurrentLeaderEpoch | None]]]) -> None:
    """Prints one line with what no file shows: offsets by name, and whether remote storage is on."""
    assumed = dict[str, None]()
    for view, by_name in used:
        for name, known in by_name.items():
            if known is not None and known.assumed:
                assumed[f"{name} ({known.source})"] = None
        setting = view.remote_storage_setting
        if setting.assumed:
            assumed[f"remote storage is {'on' if setting.enabled else 'off'} ({setting.source})"] = None
    if assumed:
        print_text(f"* assumed: {'; '.join(assumed)}")


# ---------------------------------------------------------------------------------------------------------------- follower offsets


class FollowerOffsetsView(View):
    """The result of ``follower offsets``."""

    def __init__(self, result: FollowerOffsets, findings: Sequence[Finding], source: Source) -> None:
        super().__init__(findings)
        self._result = result
        self._source = source

    def document(self) -> FollowerOffsets:
        """The document of the verb."""
        return self._result

    def print_table(self) -> None:
        """Prints the answers, the offsets that decide them, and what is assumed."""
        labels = _labels(self._source, self._result.partitions)
        answers = []
        inputs = []
        used = []
        for each in self._result.partitions:
            label = labels[each.path]
            answers += [_answer_row(label, answer) for answer in each.answers]
            offsets = {
                "log start": each.log_start,
                "local start": each.local_log_start,
                "highest remote": each.highest_remote,
                "last stable": each.last_stable,
                "high watermark": each.high_watermark,
                "log end": each.log_end,
            }
            inputs.append((label, *map(_offset_text, offsets.values())))
            used.append((each, {**offsets, "leader epoch": each.current_leader_epoch}))
        if answers:
            print_table("ListOffsets", ("partition", "asked", "offset", "epoch", "rule"), answers, right=("offset", "epoch"))
            columns = ("log start", "local start", "highest remote", "last stable", "high watermark", "log end")
            print_table("Taken from", ("partition", *columns), inputs, right=columns, drop=("high watermark",))
        _print_assumed(used)
        print_text(f"{pluralize(len(self._result.partitions), 'partition')}, {pluralize(len(answers), 'answer')}")


def _answer_row(label: str, answer: OffsetAnswer) -> tuple[object, ...]:
    name = NAMES.get(answer.timestamp_ms)
    timestamp = answer.timestamp_ms if name is None else f"{answer.timestamp_ms} {name}"
    offset = str(answer.offset)
    if answer.offset is None:
        offset = "not known"
    elif answer.error is not None:
        offset = answer.error.value
    epoch = "-" if answer.leader_epoch is None or answer.leader_epoch < 0 else answer.leader_epoch
    reason = answer.reason if answer.found_in is None else f"{answer.reason}, in {answer.found_in}"
    return label, timestamp, offset, epoch, reason


# ---------------------------------------------------------------------------------------------------------------- follower fetch-path


class FollowerFetchPathView(View):
    """The result of ``follower fetch-path``."""

    names_unread = True

    def __init__(self, result: FollowerFetchPath, findings: Sequence[Finding], source: Source) -> None:
        super().__init__(findings)
        self._result = result
        self._source = source

    def document(self) -> FollowerFetchPath:
        """The document of the verb."""
        return self._result

    def answer(self) -> Answer:
        """From where a consumer is served, in how many partitions; what corrects a loss is Kafka's own."""
        partitions = self._result.partitions
        if not partitions and selects_nothing(self.findings):
            return nothing_read(self.findings)
        counts = Counter(each.consumer.served.value for each in partitions)
        served = ", ".join(f"{count} {name}" for name, count in counts.items())
        text = f"A consumer's fetch at {self._result.offset} in {pluralize(len(partitions), 'partition')}: {served or 'none'}"
        return judgement_lines(self.findings, text), []

    def print_table(self) -> None:
        """Prints what serves a fetch, what DeleteRecords would remove, and what is assumed."""
        partitions = self._result.partitions
        labels = _labels(self._source, partitions)
        fetches = []
        deletions = []
        reasons = dict[str, None]()
        for each in partitions:
            label = labels[each.path]
            for requester, fetch in (("consumer", each.consumer), ("follower", each.follower)):
                fetches.append((label, requester, fetch.served, fetch.served_from or "-", fetch.reason))
            if each.consumer.object_key is not None:
                reasons[f"{label} is read from {each.consumer.object_key}"] = None
            reasons[each.delete_records.reason] = None
            deletions.append(_deletion_row(label, each.delete_records))
        if fetches:
            print_table(f"A fetch at {self._result.offset}", ("partition", "asks", "served", "from", "why"), fetches)
            columns = ("partition", "log start", "from disk", "from remote storage")
            print_table(f"DeleteRecords to {self._result.offset} would remove", columns, deletions)
        _print_assumed((each, {**_offsets_by_name(each), "high watermark": each.high_watermark}) for each in partitions)
        print_text(f"{pluralize(len(partitions), 'partition')}: {'; '.join(reasons) or 'none'}")


def _deletion_row(label: str, deletion: RecordDeletion) -> tuple[object, ...]:
    local = f"{pluralize(len(deletion.segments), 'segment')}, {size_text(deletion.segment_bytes)}"
    finished = deletion.finished
    remote = f"{pluralize(len(finished), 'copy', 'copies')}, {size_text(deletion.copy_bytes)}"
    if len(finished) < len(deletion.copies):
        remote += f", {pluralize(len(deletion.copies) - len(finished), 'announcement')}"
    return label, deletion.error or deletion.log_start_offset, local, remote


# ---------------------------------------------------------------------------------------------------------------- follower plan


class FollowerPlanView(View):
    """The result of ``follower plan``."""

    names_unread = True

    def __init__(self, plan: FollowerPlan, findings: Sequence[Finding], source: Source) -> None:
        super().__init__(findings)
        # The findings about the log directories are of the command, and not of the plan.
        counts = replace(plan.counts, unread=len(unread_paths(findings)))
        self._plan = replace(plan, status=counted_status(counts).word, counts=counts)
        self._source = source

    def document(self) -> FollowerPlan:
        """The document of the verb."""
        return self._plan

    def answer(self) -> Answer:
        """The steps of the followers; the audit as the next command, if one starts from the snapshot of a copy."""
        plan = self._plan
        if not plan.partitions and selects_nothing(self.findings):
            return nothing_read(self.findings)
        actions = Counter(each.last.action for each in plan.partitions)
        steps = ", ".join(f"{count} to {action.value}" for action, count in actions.items())
        status = counted_status(plan.counts)
        head = f"{faults_text(status)}{pluralize(len(plan.partitions), 'follower')}: {steps or 'none'}"
        tail = "" if plan.verified else LIVE_UNKNOWN
        text = answer_lines(status, self.findings, [head], [], tail)
        restores = any(each.restored_state is not None for each in plan.partitions)
        return text, ["tier", "audit", *given_words(*COPIES)] if restores else []

    def print_table(self) -> None:
        """Prints the decisions, the requests, the follower's log after each step, the order of offsets, and what is assumed."""
        partitions = self._plan.partitions
        labels = _labels(self._source, partitions)
        self._print_decisions(labels)
        for each in partitions:
            name = labels[each.path]
            print_text(f"{name}: {_order_text(each)}: {'; '.join(each.order_faults) or 'in order'}")
            if each.drawback is not None:
                print_text(f"{name}: {each.drawback}")
        _print_assumed(
            (
                each,
                {**_offsets_by_name(each), "last stable": each.last_stable, "high watermark": each.high_watermark},
            )
            for each in partitions
        )
        if self._plan.unknown_objects:
            objects = pluralize(self._plan.unknown_objects, "object")
            print_text(f"Not covered: {objects} in the store whose layout this version of snaprebuild does not know.")

    def _print_decisions(self, labels: Mapping[str, str]) -> None:
        decisions: list[tuple[object, ...]] = []
        requests: list[tuple[object, ...]] = []
        steps: list[tuple[object, ...]] = []
        for each in self._plan.partitions:
            label = labels[each.path]
            decisions += [(label, *row) for row in _decision_rows(each)]
            for request in each.requests:
                epoch = "-" if request.leader_epoch < 0 else request.leader_epoch
                requests.append((label, f"{request.api} {request.argument}", request.offset, epoch))
            for step in each.steps:
                epochs = " ".join(f"{entry.epoch}:{entry.start_offset}" for entry in step.leader_epochs)
                offsets = (step.log_start_offset, step.local_log_start_offset, step.log_end_offset)
                steps.append((label, *offsets, epochs or "-", step.event))
        if decisions:
            title = f"Bootstrap ({self._plan.profile})"
            print_table(title, ("partition", "row", "the follower will"), decisions, right=("row",))
        if requests:
            columns = ("partition", "request", "offset", "epoch")
            print_table("Requests to the leader", columns, requests, right=("offset", "epoch"))
        if steps:
            offset_columns = ("log start", "local start", "log end")
            columns_of_steps = ("partition", *offset_columns, "leader epochs", "after")
            print_table("The follower's log", columns_of_steps, steps, right=offset_columns, drop=("log start",))


def _decision_rows(planned: PlannedBootstrap) -> list[tuple[int, str]]:
    rows = []
    if planned.then is not None:
        first = planned.decision
        offset = "-" if first.offset is None else first.offset
        rows.append((first.row, f"{first.action} {offset}: {first.reason}"))
    decision = planned.last
    start: int | str = "-"
    if decision.offset is not None:
        start = decision.offset if planned.restored_state is None else planned.restored_state.next_offset
    rows.append((decision.row, f"{decision.action} {start}{_share_text(planned.share)}: {decision.reason}"))
    return rows


def _share_text(share: ReplicationShare) -> str:
    if share.replicated_bytes is None:
        return ""
    text = f", replicate {size_text(share.replicated_bytes)} of {size_text(share.all_bytes)}"
    if share.all_bytes:
        text += f" ({100 * share.replicated_bytes / share.all_bytes:.0f} %)"
    return text


def _order_text(planned: PlannedBootstrap) -> str:
    """The order of offsets that KIP-405 asks for."""
    last_stable = _offset_text(planned.last_stable)
    text = f"log end {planned.log_end.offset} >= last stable {last_stable} >= local start {planned.local_log_start.offset}"
    if planned.pending_upload_offset > planned.log_start.offset:
        highest = _offset_text(planned.highest_remote)
        text += f", last stable >= highest remote {highest} >= log start {_offset_text(planned.log_start)}"
    return text
