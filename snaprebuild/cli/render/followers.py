"""Results about replicas that start, or have started, from remote storage: build, check and repair.

The views of ``follower plan``, ``follower offsets`` and ``follower fetch-path`` are in ``leader_view``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.broker.status import Status
from snaprebuild.cli.answer import COPIES, given_words, repeated_words, selects_nothing
from snaprebuild.cli.options.reading import Load
from snaprebuild.cli.options.remote_storage import RemoteLevel
from snaprebuild.cli.printing import print_line, print_table, print_text, print_undo
from snaprebuild.cli.render.shared_parts import source_verdict
from snaprebuild.cli.render.status import LIVE_UNKNOWN, answer_lines, faults_text, judgement_lines, nothing_read
from snaprebuild.cli.value_text import labels_of, shown
from snaprebuild.cli.view import Advice, Answer, View
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.documents import followers as documents
from snaprebuild.documents.common import ActionTotals
from snaprebuild.findings import Finding, pluralize
from snaprebuild.followers.build import BuildPlan
from snaprebuild.followers.check import CheckedReplica, ReplicaCheck, ReplicaVerdict
from snaprebuild.followers.remote_state import RemoteState
from snaprebuild.followers.repair import ReplicaRepair
from snaprebuild.followers.replica_snapshots import LostProducer
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.storage.partition_names import named, names_of
from snaprebuild.tier.audit.partition_audit import WRONG
from snaprebuild.tier.remote_store import Tier

__all__ = ["FollowerBuildView", "FollowerCheckView", "FollowerRepairView"]

PRODUCERS_SHOWN_MAX = 5
AT_START = "when a broker next loads the log, at its start"


def _remote_producers(state: RemoteState) -> documents.RemoteProducers:
    """The state that remote storage gives, without its entries."""
    return documents.RemoteProducers(
        offset=state.offset,
        segment_id=uuid_to_text(state.segment.segment_id),
        start_offset=state.segment.start_offset,
        end_offset=state.segment.end_offset,
        replayed_from_offset=state.first_offset,
        verdict=state.verdict,
        reason=state.reason,
        entries_source=state.entries_source,
        snapshot_class=state.judgement.snapshot_class,
        reasons=state.judgement.reasons,
        entries=len(state.entries),
        open_transactions=int((state.entries["current_txn_first_offset"] >= 0).sum()),
        read_bytes=state.read_bytes,
    )


# ---------------------------------------------------------------------------------------------------------------- follower build


class FollowerBuildView(View):
    """The result of ``follower build``."""

    names_unread = True

    def __init__(
        self,
        plan: BuildPlan,
        tier: Tier,
        verdict: SourceVerdict | None,
        findings: Sequence[Finding],
        *,
        log_dir: str,
        receipt: str | None,
    ) -> None:
        """Takes the result, the log directory, and the path of the receipt, or None for a dry run."""
        super().__init__(findings)
        self._plan = plan
        self._tier = tier
        self._verdict = verdict
        self._log_dir = log_dir
        self._receipt = receipt
        self._dry_run = receipt is None

    def document(self) -> documents.FollowerBuild:
        """The document of the verb."""
        plan = self._plan
        lines = {
            name: documents.CheckpointLine(**named(entry.topic, entry.partition), offset=entry.offset)
            for name, entry in plan.checkpoints.items()
        }
        return documents.FollowerBuild(
            location=self._tier.base.path,
            verified=self._tier.verified,
            dry_run=self._dry_run,
            **named(plan.topic, plan.partition),
            topic_id=uuid_to_text(plan.topic_id),
            path=os.path.join(self._log_dir, plan.directory_name),
            target_offset=plan.target_offset,
            target_epoch=plan.target_epoch,
            next_offset=plan.next_offset,
            log_start_offset=plan.log_start_offset,
            local_log_start_offset=plan.next_offset,
            leader_epochs=plan.leader_epochs,
            remote=_remote_producers(plan.state),
            files=[documents.FollowerFile(name=each.name, size_bytes=len(each.data), sha256=each.sha256) for each in plan.files],
            checkpoint_lines=msgspec.convert(lines, documents.CheckpointLines),
            warnings=plan.warnings,
            verdict=source_verdict(self._verdict),
            takes_effect=AT_START,
            receipt=self._receipt,
        )

    def answer(self) -> Answer:
        """Where the follower begins and with which producers; the build after a dry run, or what comes before the start of the broker."""
        plan = self._plan
        counts = f"{pluralize(len(plan.state.entries), 'producer')}, {plan.state.judgement.snapshot_class.value}"
        dry = "Dry run: nothing was written. " if self._dry_run else ""
        head = f"{dry}{plan.directory_name} begins at {plan.next_offset} with {counts}"
        rebuilt = "The snapshot of the copy is wrong, and was rebuilt." if plan.state.verdict in WRONG else ""
        text = judgement_lines(self.findings, head, rebuilt or ("" if self._tier.verified else LIVE_UNKNOWN))
        if self._dry_run:
            return text, ["follower", "build", *repeated_words("dry_run")]
        return text, Advice("merge the lines below into the checkpoints, and start the broker")

    def print_table(self) -> None:
        """Prints the follower, the lines for the checkpoints, and where it was written."""
        plan = self._plan
        snapshot_class = plan.state.judgement.snapshot_class.value
        epochs = " ".join(f"{each.epoch}:{each.start_offset}" for each in plan.leader_epochs)
        copy = uuid_to_text(plan.segment.segment_id)
        producers = len(plan.state.entries)
        row = (plan.directory_name, plan.log_start_offset, plan.next_offset, producers, snapshot_class, copy, epochs)
        columns = ("partition", "log start", "fetches from", "producers", "class", "of the copy", "leader epochs")
        right = ("log start", "fetches from", "producers")
        print_table("Follower", columns, [row], right=right, drop=("of the copy", "producers"))
        for warning in plan.warnings:
            print_text(f"note: {warning}")
        print_text("Lines to merge into the checkpoints")
        for name, entry in plan.checkpoints.items():
            print_line(f" {name}: {entry.topic} {entry.partition} {entry.offset}")
        if self._dry_run:
            return
        path = os.path.join(shown(self._log_dir), plan.directory_name)
        print_text(f"written: {path} ({pluralize(len(plan.files), 'file')}); it takes effect when the broker next starts")
        print_undo(self._receipt)


# ---------------------------------------------------------------------------------------------------------------- follower check


def _replica(replica: CheckedReplica) -> dict[str, Any]:
    """The members of a ``FollowerReplica``."""
    return {
        **names_of(replica.source.directory),
        "path": replica.source.directory.path,
        "first_offset": replica.first_offset,
        "log_start_offset": replica.source.log_start_offset,
        "verdict": replica.verdict,
        "reason": replica.reason,
        "loss_cause": replica.loss_cause,
        "remote": None if replica.remote is None else _remote_producers(replica.remote),
        "read_bytes": replica.read_bytes,
        "snapshots": replica.snapshots,
    }


def _print_replicas(title: str, replicas: Sequence[CheckedReplica]) -> None:
    """Prints one line for each replica."""
    labels = labels_of(replica.source for replica in replicas)
    rows = []
    for each in sorted(replicas, key=lambda replica: -replica.lost_count):
        worst = each.worst
        remote = each.remote
        lost: int | str = "-"
        lost_open: int | str = "-"
        remote_state = "-"
        if remote is not None:
            lost = each.lost_count
            lost_open = 0 if worst is None else worst.lost_open_transactions
            remote_state = f"{remote.judgement.snapshot_class.value}, {pluralize(len(remote.entries), 'producer')}"
        wrong = sum(snapshot.proven_wrong for snapshot in each.snapshots)
        label = labels[each.source.directory.path]
        log_start = each.source.log_start_offset
        rows.append((label, each.verdict, lost, lost_open, wrong, log_start, each.first_offset, remote_state))
    columns = ("partition", "verdict", "lost", "open", "wrong", "log start", "first local", "remote storage there")
    print_table(title, columns, rows, right=("lost", "open", "wrong", "log start", "first local"), drop=("log start", "open"))


def _print_lost_producers(replicas: Sequence[CheckedReplica]) -> None:
    """Prints the producers that were lost, those with open transactions first, and how many more."""
    producers: list[tuple[CheckedReplica, LostProducer]] = []
    for replica in replicas:
        if replica.worst is not None:
            producers += [(replica, each) for each in replica.worst.lost if not each.expired]
    producers.sort(key=lambda pair: pair[1].open_from is None)
    rows = [
        (replica.source.directory.topic_partition, each.producer_id, each.epoch, each.last_offset, each.consequence)
        for replica, each in producers[:PRODUCERS_SHOWN_MAX]
    ]
    if rows:
        columns = ("partition", "producer", "epoch", "last offset", "what its absence costs")
        print_table("Lost producers", columns, rows, right=("producer", "epoch", "last offset"), drop=("epoch", "last offset"))
    hidden = sum(replica.lost_count for replica in replicas) - len(rows)
    if hidden:
        print_text(f"and {pluralize(hidden, 'more producer')} (--output json lists up to 1,000 of each replica)")


class FollowerCheckView(View):
    """The result of ``follower check``."""

    names_unread = True

    def __init__(
        self, check: ReplicaCheck, tier: Tier, findings: Sequence[Finding], *, level: RemoteLevel, elapsed_seconds: float
    ) -> None:
        super().__init__(findings)
        self._check = check
        self._tier = tier
        self._level = level
        self._elapsed_seconds = elapsed_seconds
        self._counts = Counter(replica.verdict for replica in check.replicas)

    def document(self) -> documents.FollowerCheck:
        """The document of the verb."""
        check = self._check
        status = check.status(self.findings)
        totals = {verdict.value: self._counts[verdict] for verdict in ReplicaVerdict}
        return documents.FollowerCheck(
            location=self._tier.base.path,
            level=self._level.value,
            verified=check.verified,
            as_of_ms=check.clock.as_of_ms,
            expiration_ms=check.clock.expiration_ms,
            elapsed_seconds=round(self._elapsed_seconds, 4),
            totals=msgspec.convert(totals, documents.ReplicaTotals),
            replicas=[documents.FollowerReplica(**_replica(each)) for each in check.replicas],
            status=status.word.value,
            counts=status.counts,
        )

    def print_table(self) -> None:
        """Prints the replicas and the producers that they lost."""
        if self._check.replicas:
            _print_replicas("Replicas", self._check.replicas)
        _print_lost_producers(self._check.replicas)

    def answer(self) -> Answer:
        """The verdicts with their counts; a repair, if a replica needs one."""
        if selects_nothing(self.findings):
            return nothing_read(self.findings)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self._counts.items()))
        status = self._check.status(self.findings)
        head = f"{faults_text(status)}{pluralize(len(self._check.replicas), 'replica')}: {verdicts or 'none'}"
        text = answer_lines(status, self.findings, [head], [], "" if self._check.verified else LIVE_UNKNOWN)
        wrong = [each for each in self._check.replicas if each.is_wrong]
        # A repair reads the segments: only after the same was done here it is known that it would refuse all of them.
        if not wrong or (self._level is RemoteLevel.FULL and not any(each.is_repairable for each in wrong)):
            return text, _audit_words(self._check, status)
        aside = ["--set-aside"] if any(each.proven_wrong for replica in wrong for each in replica.snapshots) else []
        return text, ["follower", "repair", *repeated_words("proof", *Load.__struct_fields__), *aside, "--dry-run"]


def _audit_words(check: ReplicaCheck, status: Status) -> list[str]:
    """The audit, where something is wrong in remote storage, which no repair of a replica changes; no words if nothing is."""
    is_wrong = any(replica.has_wrong_remote for replica in check.replicas)
    if is_wrong or status.damaged:
        return ["tier", "audit", *given_words(*COPIES)]
    return []


# ---------------------------------------------------------------------------------------------------------------- follower repair


class FollowerRepairView(View):
    """The result of ``follower repair``."""

    names_unread = True

    def __init__(
        self, repair: ReplicaRepair, tier: Tier, findings: Sequence[Finding], *, dry_run: bool, elapsed_seconds: float
    ) -> None:
        super().__init__(findings)
        self._repair = repair
        self._tier = tier
        self._dry_run = dry_run
        self._elapsed_seconds = elapsed_seconds
        self._partitions = () if repair.result is None else repair.result.partitions
        self._totals = Counter(boundary.action for partition in self._partitions for boundary in partition.boundaries)

    @property
    def _receipt(self) -> str | None:
        return None if self._repair.result is None else self._repair.result.receipt

    def document(self) -> documents.FollowerRepair:
        """The document of the verb."""
        check = self._repair.check
        status = self._repair.status(self.findings)
        return documents.FollowerRepair(
            location=self._tier.base.path,
            verified=check.verified,
            as_of_ms=check.clock.as_of_ms,
            expiration_ms=check.clock.expiration_ms,
            elapsed_seconds=round(self._elapsed_seconds, 4),
            dry_run=self._dry_run,
            receipt=self._receipt,
            takes_effect=AT_START,
            totals=ActionTotals(**{action.value: count for action, count in self._totals.items()}),
            replicas=[self._repaired_replica(each) for each in check.replicas],
            status=status.word.value,
            counts=status.counts,
        )

    def _repaired_replica(self, replica: CheckedReplica) -> documents.RepairedReplica:
        result = self._repair.of(replica)
        return documents.RepairedReplica(
            **_replica(replica),
            repaired=self._repair.is_repaired(replica),
            boundaries=[] if result is None else result.boundaries,
        )

    def print_table(self) -> None:
        """Prints the replicas as they were, the snapshots, and how the repair is taken back."""
        if self._repair.check.replicas:
            _print_replicas("Replicas, as they were", self._repair.check.replicas)
        rows = []
        for partition in self._partitions:
            name = partition.plan.source.directory.topic_partition
            for each in partition.boundaries:
                snapshot_class = "-" if each.snapshot_class is None else each.snapshot_class.value
                before = None if each.comparison is None else each.comparison.found_entries
                action = each.action.replace("_", " ")
                rows.append((name, each.offset, action, snapshot_class, before, each.entries, each.set_aside_name))
        if rows:
            columns = ("partition", "offset", "done", "class", "had", "producers", "the old one is now")
            title = "What would be written" if self._dry_run else "Snapshots"
            print_table(title, columns, rows, right=("offset", "had", "producers"), drop=("had", "producers", "class"))
        print_undo(self._receipt)

    def answer(self) -> Answer:
        """The actions with their counts, and the next command."""
        repair = self._repair
        if selects_nothing(self.findings):
            return nothing_read(self.findings)
        totals = self._totals
        actions = ", ".join(f"{count} {action.replace('_', ' ')}" for action, count in totals.items())
        status = repair.status(self.findings)
        replicas = pluralize(len(repair.check.replicas), "replica")
        extra = []
        if actions:
            dry = "Dry run: nothing was written. " if self._dry_run else ""
            head = f"{faults_text(status)}{dry}{replicas}: {actions}"
        else:
            unknown = f"{status.unproven} unknown, " if status.unproven else ""
            head = f"{faults_text(status)}{replicas}: {unknown}nothing to repair"
        if totals[BoundaryAction.WRITTEN]:
            extra.append("The new ones take effect when the broker next starts.")
        text = answer_lines(status, self.findings, [head], extra)
        if self._dry_run and totals[BoundaryAction.WOULD_WRITE]:
            return text, ["follower", "repair", *repeated_words("dry_run")]
        if not totals:
            return text, _audit_words(repair.check, status)
        return text, ["follower", "check", *repeated_words("dry_run", "set_aside", "receipt")]
