"""A document of ``fleet`` on a page."""

from __future__ import annotations

from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.fleet.replicas import FleetReplica
from snaprebuild.cluster.fleet.restart_plan import RepairCover, RestartStep
from snaprebuild.documents.fleet import Fleet, UnhealthyPartition
from snaprebuild.documents.saved_documents import DocumentHead, typed_members
from snaprebuild.published import encoded_members
from snaprebuild.report.page_data import PagePartition
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_writer import PageSink

__all__ = ["take_fleet"]

LACKS = ("segments and snapshots of the replicas: the documents of `scan` have them; all documents make one page",)

STEPS = ["step", "broker", "do", "partitions", "snapshots", "bytes to read at most", "minutes", "bytes freed"]

REPLICAS = [
    "broker",
    "state",
    "log start",
    "log end",
    "leader epoch",
    "missing",
    "suspect",
    "blocked segments",
    "stuck bytes",
    "bytes to read at most",
]

ADVICE = {
    FleetOutcome.HEALTHY: "nothing: any leader uploads it",
    FleetOutcome.ELECT: "elect {}, which has every snapshot",
    FleetOutcome.REPAIR: "repair {}, then let it lead",
    FleetOutcome.VERIFY: "verify: every replica has snapshots that cannot be correct",
    FleetOutcome.WAIT: "wait for retention: a rebuild does not help",
    FleetOutcome.NOT_SCANNED: "not judged: scan the broker that leads it",
    FleetOutcome.GONE: "not judged: the metadata log has no topic of this id",
}


def take_fleet(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``fleet``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument.of(head, *LACKS)
    left_out = ("has_metadata", "rate_bytes_per_second", "elections", "status", "counts")
    names = [name for name in Fleet.__struct_fields__ if name not in left_out]
    number = sink.add_document(document)
    cluster = "the cluster"
    repair = ""
    steps = list[list[str]]()
    assumes = list[str]()
    shared = ("unread_paths", "findings", "exit_code")
    for name, value in typed_members(head.path, Fleet, (*names, *shared), optional=("counts", "answer", "next_command")):
        if name == "cluster_id" and value is not None:
            cluster = f"cluster {value}"
            document.facts.append(("cluster", value))
        elif name == "totals":
            outcomes = ", ".join(
                f"{count} {outcome}" for outcome, count in encoded_members(value.partitions_by_outcome).items() if count
            )
            document.facts.append(("partitions", outcomes or "none"))
        elif name == "repair_cover":
            repair = _repair_text(value)
        elif name == "assumes":
            assumes += value
        elif name == "steps":
            steps.append(_step_row(len(steps) + 1, value))
        elif name == "partitions":
            place = cluster if value.topic_id is None else f"{cluster}, topic id {value.topic_id}"
            _take_partition(value, sink.partition(value.topic_partition, place, number))
        else:
            sink.take_shared(document, name, value)
    document.facts += [("assumed", each) for each in assumes]
    sink.page.tables.append(("Restarts, one after the other", repair, STEPS, steps))


def _repair_text(repair: RepairCover) -> str:
    brokers = ", ".join(map(str, repair.brokers))
    if not brokers:
        return "No broker has to be repaired."
    proof = "no smaller set holds a replica of each partition that no election frees"
    if not repair.is_smallest:
        proof = f"a greedy choice; at least {repair.brokers_at_least} are needed"
    return (
        f"Repair broker {brokers}: {proof}. "
        "Each stops when the one before is in sync again, so that no partition loses two replicas at once."
    )


def _step_row(number: int, step: RestartStep) -> list[str]:
    seconds = step.estimated_seconds
    do = "stop, rebuild, start" if step.needs_rebuild else "stop, start"
    return [
        str(number),
        str(step.node_id),
        f"{do} (controller)" if step.is_controller else do,
        *map(str, (step.partitions, step.missing, step.replay_bytes)),
        "unknown: no rate was stated" if seconds is None else f"{seconds / 60:.1f}",
        str(step.freed_bytes),
    ]


def _take_partition(unhealthy: UnhealthyPartition, partition: PagePartition) -> None:
    partition.stuck_bytes = unhealthy.stuck_bytes
    partition.outcome = unhealthy.outcome
    broker = "one of its brokers" if unhealthy.elect is None else f"broker {unhealthy.elect}"
    partition.facts.append(("to do", ADVICE[unhealthy.outcome].format(broker)))
    for name, value in (("condition", unhealthy.condition), ("leader", unhealthy.leader)):
        if value is not None:
            partition.facts.append((name, str(value)))
    if unhealthy.not_scanned:
        partition.facts.append(("not scanned", ", ".join(map(str, unhealthy.not_scanned))))
    partition.tables.append(("Replicas", REPLICAS, [_replica_row(each) for each in unhealthy.replicas]))


def _replica_row(replica: FleetReplica) -> list[str]:
    end = replica.log_end_offset
    return [
        str(replica.node_id),
        replica.state,
        str(replica.log_start_offset),
        f"at least {replica.log_end_at_least}" if end is None else str(end),
        str(replica.leader_epoch),
        *map(str, (replica.missing, replica.suspect, replica.blocked_segments, replica.stuck_bytes, replica.replay_bytes)),
    ]
