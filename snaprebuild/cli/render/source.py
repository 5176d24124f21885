"""Whether replicas may be sources: the view of ``cluster source``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from formats.partition.partition_metadata import uuid_text_or_none
from snaprebuild.cli.answer import SELECTION, given_words
from snaprebuild.cli.printing import print_table, print_text
from snaprebuild.cli.render.status import judgement_lines, nothing_read
from snaprebuild.cli.value_text import shown
from snaprebuild.cli.view import Answer, View
from snaprebuild.cluster.source_check.check import CheckedSource, SourceCheck
from snaprebuild.cluster.source_check.metadata_read import MetadataRead
from snaprebuild.cluster.source_check.source_question import SourceTerms
from snaprebuild.documents import cluster as doc
from snaprebuild.findings import Finding, pluralize
from snaprebuild.published import members_of_base
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.storage.partition_names import names_of

__all__ = ["SourceView"]

RULES_TABLES_MAX = 1
"""Replicas whose rules are printed one by one without ``-v``."""

PURPOSE_TEXTS = {
    Purpose.REBUILD: "a rebuild in place",
    Purpose.UPLOAD: "uploads",
    Purpose.BOOTSTRAP: "other replicas",
}


class SourceView(View):
    """Replicas with their verdicts and the results of the rules."""

    names_unread = True

    def __init__(self, result: SourceCheck, findings: Sequence[Finding], *, everything: bool) -> None:
        super().__init__(findings)
        self._result = result
        self._everything = everything

    def document(self) -> doc.ClusterSource:
        terms = members_of_base(SourceTerms, self._result.question)
        return doc.ClusterSource(**terms, replicas=[_checked_replica(each) for each in self._result.replicas])

    def answer(self) -> Answer:
        """The verdicts with their counts; the plan of a rebuild, if each replica may be its source."""
        replicas = self._result.replicas
        if not replicas:
            return nothing_read(self.findings)
        purpose = self._result.question.purpose
        counts = Counter(each.verdict.outcome.value for each in replicas)
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        answer = f"{pluralize(len(replicas), 'replica')} as a source for {PURPOSE_TEXTS[purpose]}: {outcomes}"
        answer = judgement_lines(self.findings, answer)
        if purpose is not Purpose.REBUILD or any(each.verdict.is_rejected for each in replicas):
            return answer, []
        return answer, ["plan", *given_words(*SELECTION, "metadata")]

    def print_table(self) -> None:
        replicas = self._result.replicas
        rows = [
            (
                shown(each.log.path),
                each.verdict,
                "-" if each.verdict.rule is None else f"{each.verdict.rule.name} {each.verdict.rule.value}",
                each.verdict.reason or "-",
            )
            for each in replicas
        ]
        if rows:
            print_table(None, ("replica", "verdict", "rule", "because"), rows, drop=("rule",))
        if self._everything or len(replicas) <= RULES_TABLES_MAX:
            for each in replicas:
                _print_rules(each)
        for text in dict.fromkeys(_metadata_text(each) for each in replicas):
            print_text(text)


def _checked_replica(checked: CheckedSource) -> doc.ClusterSourceReplica:
    log = checked.log
    state = checked.state
    metadata = checked.metadata.read
    return doc.ClusterSourceReplica(
        **names_of(checked.directory),
        path=log.path,
        node_id=state.node_id,
        cluster_id=state.cluster_id,
        directory_id=uuid_text_or_none(state.directory_id),
        topic_id=uuid_text_or_none(log.topic_id),
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        metadata_log=None if metadata is None else _metadata_log(metadata),
        metadata_log_missing=checked.metadata.missing_reason if metadata is None else None,
        verdict=checked.verdict.summary(),
        verdict_text=str(checked.verdict),
        rules=[
            doc.ReplicaRuleResult(
                rule=each.rule.name,
                name=each.rule,
                state=each.state_name,
                evidence=each.evidence,
                trusted_below=each.trusted_below,
            )
            for each in checked.verdict.results
        ],
    )


def _metadata_log(metadata: MetadataRead) -> doc.MetadataLogUsed:
    return doc.MetadataLogUsed(
        path=metadata.path,
        is_own=metadata.is_own,
        offset=metadata.image.offset,
        proven_below=metadata.proven_below,
        proof_text=metadata.proof,
        unknown_contents=metadata.read.log.unknown.contents(metadata.read.log.other_files),
    )


def _print_rules(checked: CheckedSource) -> None:
    rows = [(f"{each.rule.name} {each.rule.value}", each.state_name, each.evidence) for each in checked.verdict.results]
    print_table(f"Rules: {os.path.basename(shown(checked.log.path))}", ("rule", "result", "evidence"), rows, all_rows=True)


def _metadata_text(checked: CheckedSource) -> str:
    metadata = checked.metadata.read
    if metadata is None:
        asserted = "".join(f"; {each}" for each in checked.verdict.asserted_by_operator)
        return f"metadata log: none for {shown(checked.state.path)}: {checked.metadata.missing_reason}{asserted}"
    unknown = metadata.read.log.unknown
    covered = f". Not covered: {unknown.sentence}" if unknown else ""
    return f"metadata log: {shown(metadata.path)}: {metadata.summary}{covered}"
