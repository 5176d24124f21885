"""The sentence of a first line for a broker that would upload under topic id zero."""

from __future__ import annotations

from collections.abc import Iterable

from snaprebuild.broker.remote_readiness import not_ready_text
from snaprebuild.cli.printing import print_text
from snaprebuild.cli.view import Answer
from snaprebuild.findings import Severity
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.source.topic_ids import topics_under_id_zero

__all__ = ["answer_with_readiness", "answer_with_refusal", "print_readiness_notes"]


def answer_with_readiness(answer: Answer, partitions: Iterable[PartitionSource]) -> Answer:
    """An answer and the words of the next command, preceded by the topics that have no id.

    Args:
        answer: of a verb.
        partitions: that it has read.
    """
    text, following = answer
    return f"{not_ready_text(topics_under_id_zero(partitions))} {text}".lstrip(), following


def answer_with_refusal(answer: Answer, partitions: Iterable[PartitionSource], request: RebuildRequest) -> Answer:
    """The answer of a verb that writes, preceded by the topics that it leaves out because they have no id.

    Args:
        answer: of a verb, with the words of the next command.
        partitions: that it has read.
        request: of the run. With another destination than a broker's log directories, or with ``accept_topic_id_zero`` nothing is left out.
    """
    if not request.destination.is_for_broker or request.accept_topic_id_zero:
        return answer
    return answer_with_readiness(answer, partitions)


def print_readiness_notes(plan: Plan) -> None:
    """What has to be done before remote storage is switched on: notes are not on stderr, and this one must not be missed."""
    for each in plan.readiness:
        if each.severity is Severity.NOTE:
            print_text(f"Note: {each.message}.")
