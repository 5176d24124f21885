"""May this replica be a source? Thirteen rules on what its files, the cluster and other replicas say, and the verdict that follows.

A verdict is for a purpose. Snapshots next to a replica's own segments describe local bytes, whatever the ISR. Copies in remote storage,
and the log of another replica, become the log that others read. A rule without its evidence rejects nothing. If that evidence should
exist, the verdict is UNKNOWN. If this kind of cluster cannot have it, the rule is not applicable and changes nothing.

Source: KIP-903, KIP-966, KIP-858, KIP-101; ``docs/reference/cluster-rules.md`` has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from snaprebuild.cluster.rule_result import Basis, RuleState, finding_of, unknown
from snaprebuild.cluster.source_check.cluster_rules import (
    assignment,
    broker_epoch,
    directory_id,
    in_sync,
    recovery_state,
    registration,
    topic_id,
)
from snaprebuild.cluster.source_check.evidence import SourceEvidence
from snaprebuild.cluster.source_check.lineage import leader_epochs
from snaprebuild.cluster.source_check.rules import (
    SourceRule,
    SourceRuleResult,
    broker_ids,
    clean_shutdown,
    directory_form,
    high_watermark,
    log_end,
)
from snaprebuild.findings import Finding, Severity
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome, VerdictSummary

__all__ = ["SourceRule", "SourceVerdict", "judge"]


_RULES: dict[SourceRule, Callable[[SourceEvidence], SourceRuleResult]] = {
    SourceRule.R1: directory_form,
    SourceRule.R2: broker_ids,
    SourceRule.R3: registration,
    SourceRule.R4: directory_id,
    SourceRule.R5: topic_id,
    SourceRule.R6: assignment,
    SourceRule.R7: in_sync,
    SourceRule.R8: recovery_state,
    SourceRule.R9: clean_shutdown,
    SourceRule.R10: broker_epoch,
    SourceRule.R11: high_watermark,
    SourceRule.R12: leader_epochs,
    SourceRule.R13: log_end,
}

_CLUSTER_RULES = (SourceRule.R3, SourceRule.R4, SourceRule.R5, SourceRule.R6, SourceRule.R7, SourceRule.R8, SourceRule.R10)
"""Only a metadata log has the evidence of these."""

_IDENTITY_RULES = (SourceRule.R1, SourceRule.R2, SourceRule.R3, SourceRule.R4, SourceRule.R5, SourceRule.R6, SourceRule.R10)
"""These say whether it is the replica at all that the cluster speaks of; so they are asked first, a stale copy (R10) before its ISR."""


_RULES_OF_PRESENT_STATE = (SourceRule.R3, SourceRule.R4, SourceRule.R5, SourceRule.R6, SourceRule.R7, SourceRule.R8, SourceRule.R13)
"""These compare the disk with the state at the end of the metadata log. R10 asks itself what a lost end leaves open."""

_PURPOSE_TEXTS = {
    Purpose.REBUILD: "a rebuild in place",
    Purpose.UPLOAD: "an upload",
    Purpose.BOOTSTRAP: "another replica",
}


class SourceVerdict(msgspec.Struct, frozen=True):
    """Whether a replica may be a source for a purpose.

    Attributes:
        purpose: of the source.
        outcome: of all rules.
        trusted_below: the lowest limit of a rule: nothing above this offset is trusted; None without a limit, and for REJECTED.
        rule: the first one that fails, or that is not known, or that limits the offset; None if none does.
        results: of all rules, in their order.
        asserted_by_operator: what the operator asserts, a sentence each.
        is_without_metadata_log: no metadata log is at hand, although the disk is not known to be one of a cluster with ZooKeeper.
    """

    purpose: Purpose
    outcome: VerdictOutcome
    trusted_below: int | None
    rule: SourceRule | None
    results: tuple[SourceRuleResult, ...]
    asserted_by_operator: tuple[str, ...] = ()
    is_without_metadata_log: bool = False

    @property
    def lacks_metadata_log_alone(self) -> bool:
        """Whether everything that is unknown would be in a metadata log, and none is at hand: as on one of several disks of a node."""
        return self.is_without_metadata_log and all(rule in _CLUSTER_RULES for rule in self.unknown_rules)

    @property
    def trusted_below_after_clean_stop(self) -> int | None:
        """``trusted_below`` as it would be after a clean stop of the broker: the lowest limit of another rule than R9."""
        limits = (
            result.trusted_below for result in self.results if result.rule is not SourceRule.R9 and result.trusted_below is not None
        )
        return min(limits, default=None)

    @property
    def is_rejected(self) -> bool:
        """Nothing may be taken from it."""
        return self.outcome is VerdictOutcome.REJECTED

    @property
    def reason(self) -> str:
        """The sentence of the deciding rule; empty if none decides."""
        return next((result.evidence for result in self.results if result.rule is self.rule), "")

    def reason_of_limit(self, offset: int) -> str:
        """The sentence of the first rule that trusts nothing above an offset; empty if none does."""
        return next((result.evidence for result in self.results if result.trusted_below == offset), "")

    @property
    def unknown_rules(self) -> tuple[SourceRule, ...]:
        """The rules whose evidence should be there, and is missing, cannot be read, or contradicts itself."""
        return tuple(result.rule for result in self.results if result.state is RuleState.UNKNOWN)

    @property
    def rules_of_damaged_files(self) -> tuple[SourceRule, ...]:
        """The rules whose evidence is a file of the replica that is damaged, or missing although each broker of this kind writes it."""
        return tuple(result.rule for result in self.results if result.basis is Basis.DAMAGED_FILE)

    @property
    def rules_broken_so_far(self) -> tuple[SourceRule, ...]:
        """The rules that the records of the metadata log break, and that only records which it lost could mend."""
        return tuple(result.rule for result in self.results if result.basis is Basis.RECORDS_SO_FAR)

    @property
    def not_applicable_rules(self) -> tuple[SourceRule, ...]:
        """The rules for which this kind of cluster, or this question, has no evidence."""
        return tuple(result.rule for result in self.results if result.state is RuleState.NOT_APPLICABLE)

    @property
    def needs_confirmation(self) -> tuple[SourceRule, ...]:
        """Rules without evidence from the cluster, if it is one with ZooKeeper, where nothing shows that the replica leads or is in sync.

        Copies in remote storage, and the log of another replica, must not depend on such a replica unless the operator confirms it.
        Empty if the operator has confirmed it, and for a rebuild, which describes local bytes. What a missing or older metadata log
        leaves open is unknown instead, and no word of the operator answers it.
        """
        if self.purpose is Purpose.REBUILD or SourceRule.R7 not in self.not_applicable_rules:
            return ()
        return tuple(rule for rule in self.not_applicable_rules if rule in _CLUSTER_RULES)

    @property
    def is_own_log_alone(self) -> bool:
        """After an unclean stop only the broker's own metadata log shows when it registered, and the operator did not accept that."""
        return any(result.basis is Basis.OWN_LOG_ALONE for result in self.results)

    def evidence_of(self, rule: SourceRule) -> str:
        """The sentence of a rule."""
        return next(result.evidence for result in self.results if result.rule is rule)

    def summary(self) -> VerdictSummary:
        """The verdict in a document, without the results of its rules."""
        return VerdictSummary(
            purpose=self.purpose,
            outcome=self.outcome,
            trusted_below=self.trusted_below,
            rule=None if self.rule is None else self.rule.name,
            reason=self.reason or None,
            unknown_rules=tuple(rule.name for rule in self.unknown_rules),
            not_applicable_rules=tuple(rule.name for rule in self.not_applicable_rules),
            asserted_by_operator=self.asserted_by_operator,
        )

    def rejection_finding(self, path: str) -> Finding:
        """The finding of a source that was refused."""
        rejection = next(result for result in self.results if result.rule is self.rule)
        prefix = f"no source for {_PURPOSE_TEXTS[self.purpose]}, {self}: "
        return finding_of(rejection, "source-rejected", path, prefix=prefix, reason=rejection.rule.value)

    def in_place_refusal(self, path: str) -> Finding | None:
        """Why nothing is written next to the segments of the replica; None if something may be."""
        if self.is_rejected:
            return self.rejection_finding(path)
        if self.rules_of_damaged_files:
            cause = f"a file that could reject this replica is damaged or missing ({self._reasons(self.rules_of_damaged_files)}"
            advice = "Restore the file from a backup, or use --out DIR"
        elif self.rules_broken_so_far:
            cause = f"the metadata log rejects this replica as far as the log goes ({self._reasons(self.rules_broken_so_far)}"
            advice = "Name the metadata log of another node with --metadata DIR, or use --out DIR"
        else:
            return None
        return Finding("source-unknown", Severity.REFUSED, path, f"nothing is written in place, because {cause}. {advice}")

    def _reasons(self, rules: Collection[SourceRule]) -> str:
        reasons = dict.fromkeys(self.evidence_of(rule) for rule in rules)
        return f"{', '.join(rule.name for rule in rules)}): {'; '.join(reasons)}"

    def confirmation_finding(self, path: str, severity: Severity) -> Finding | None:
        """The finding of a replica that is not known to lead or to be in sync; None if it is, or the operator asserts it."""
        if self.is_rejected or not self.needs_confirmation:
            return None
        rules = ", ".join(rule.name for rule in self.needs_confirmation)
        message = (
            f"nothing shows that this replica leads, and {_PURPOSE_TEXTS[self.purpose]} needs that: {rules} have nothing to judge "
            f"({self.evidence_of(SourceRule.R7)}). Use --i-am-the-leader if it leads"
        )
        return Finding("source-word-needed", severity, path, message)

    def unknown_finding(self, path: str, severity: Severity, reported: Collection[str] = ()) -> Finding | None:
        """The finding of a replica for which evidence is missing that should be there.

        Args:
            path: of the replica.
            severity: of the finding.
            reported: messages of findings: a reason that is in one of them is not reported again.

        Returns:
            None if nothing is unknown, or nothing that was not reported.
        """
        reasons = dict.fromkeys(self.evidence_of(rule) for rule in self.unknown_rules)
        new = [reason for reason in reasons if not any(reason in message for message in reported)]
        if self.is_rejected or not new:
            return None
        rules = ", ".join(rule.name for rule in self.unknown_rules)
        message = f"whether it may be the source of {_PURPOSE_TEXTS[self.purpose]} is not known ({rules}): {'; '.join(new)}"
        return Finding("source-unknown", severity, path, message)

    def __str__(self) -> str:
        if self.outcome is VerdictOutcome.TRUSTED:
            return self.outcome.value
        inside: int | str | None = self.trusted_below
        if self.outcome is not VerdictOutcome.TRUSTED_BELOW and self.rule is not None:
            inside = self.rule.name
        return f"{self.outcome.value}({inside})"


def judge(evidence: SourceEvidence) -> SourceVerdict:
    """The verdict on a replica.

    Args:
        evidence: on the replica, with the purpose.
    """
    purpose = evidence.purpose
    results = tuple(_proven(_result(rule, evidence), evidence) for rule in _RULES)
    asserted = tuple(result.evidence for result in results if result.basis is Basis.OPERATOR)
    order = [*_IDENTITY_RULES, *(rule for rule in SourceRule if rule not in _IDENTITY_RULES)]
    failed = [result.rule for result in results if result.state is RuleState.BROKEN]
    is_without = not evidence.has_metadata_log and evidence.needs_metadata_log

    def verdict(outcome: VerdictOutcome, trusted_below: int | None, rule: SourceRule | None) -> SourceVerdict:
        return SourceVerdict(
            purpose=purpose,
            outcome=outcome,
            trusted_below=trusted_below,
            rule=rule,
            results=results,
            asserted_by_operator=asserted,
            is_without_metadata_log=is_without,
        )

    if failed:
        return verdict(VerdictOutcome.REJECTED, None, min(failed, key=order.index))
    limits = [(result.trusted_below, result.rule) for result in results if result.trusted_below is not None]
    offset, drawn_by = min(limits, key=lambda limit: limit[0], default=(None, None))
    unknown = [result.rule for result in results if result.state is RuleState.UNKNOWN]
    # Below 0 nothing is trusted, whatever its own files leave open; what the cluster leaves open is said all the same.
    if unknown and (offset != 0 or any(rule in _CLUSTER_RULES for rule in unknown)):
        broken = [result.rule for result in results if result.basis is Basis.RECORDS_SO_FAR]
        return verdict(VerdictOutcome.UNKNOWN, offset, min(broken or unknown, key=order.index))
    outcome = VerdictOutcome.TRUSTED if offset is None else VerdictOutcome.TRUSTED_BELOW
    return verdict(outcome, offset, drawn_by)


def _result(rule: SourceRule, evidence: SourceEvidence) -> SourceRuleResult:
    """The result of one rule.

    A metadata log that lacks its last records speaks for no replica. A rule that its records break stays broken, unless lost records could
    mend it: then the rule is unknown, and what needs it is refused.
    """
    rule_result = _RULES[rule]
    result = rule_result(evidence)
    older = None if evidence.cluster is None else evidence.cluster.older
    if older is None or rule not in _RULES_OF_PRESENT_STATE or result.state is RuleState.BROKEN:
        return result
    so_far = rule_result(evidence.by_records_so_far)
    if so_far.state is RuleState.BROKEN and _is_final(rule, evidence):
        return so_far
    if so_far.state is RuleState.BROKEN or so_far.basis is Basis.RECORDS_SO_FAR:
        return unknown(rule, f"{so_far.evidence}; but {older}", trusted_below=result.trusted_below, basis=Basis.RECORDS_SO_FAR)
    return result


def _is_final(rule: SourceRule, evidence: SourceEvidence) -> bool:
    """Whether no later record of the metadata log can mend a rule that its records break.

    * A topic id is never used again.
    * A broker that registers again has another epoch than the disk (R10). Without that its registration only loses directories
      (``ClusterControlManager``).
    """
    if rule is SourceRule.R5:
        return evidence.cluster is not None and evidence.cluster.is_topic_removed
    return rule in (SourceRule.R3, SourceRule.R4) and evidence.is_run_registered


def _proven(result: SourceRuleResult, evidence: SourceEvidence) -> SourceRuleResult:
    """A result that rests on the cluster, speaks for the replica, and is not proven to be committed, is unknown."""
    unproven = None if evidence.cluster is None else evidence.cluster.unproven
    if unproven is None or result.rule not in _CLUSTER_RULES or result.state is not RuleState.HOLDS:
        return result
    return unknown(result.rule, unproven)
