"""The result of ``fleet``: its document, first lines and tables."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.status import total_counts, word_of
from snaprebuild.cli.answer import given_words, repeated_words, unless_unread
from snaprebuild.cli.printing import print_line, print_table, print_text
from snaprebuild.cli.render.status import faults_text
from snaprebuild.cli.value_text import size_text
from snaprebuild.cli.view import Advice, Answer, View
from snaprebuild.cluster.fleet.cluster_view import ClusterView
from snaprebuild.cluster.fleet.election_risk import Risk
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome, FleetPartition
from snaprebuild.cluster.fleet.merge import FleetResult
from snaprebuild.cluster.fleet.replicas import FleetBroker, FleetReplica, ReplicaReadiness
from snaprebuild.cluster.fleet.restart_plan import Restart, RestartStep
from snaprebuild.cluster.fleet.upgrade_steps import Go, StepName, UpgradeStep
from snaprebuild.documents.fleet import Fleet, FleetTotals, Outcomes, UnhealthyPartition
from snaprebuild.findings import first_of, pluralize
from snaprebuild.published import members_of_base
from snaprebuild.shell_words import option_words
from snaprebuild.snapshots.run import run_record
from snaprebuild.storage.partition_names import named

__all__ = ["FleetView"]

STUCK = (FleetOutcome.ELECT, FleetOutcome.REPAIR, FleetOutcome.WAIT)
"""Outcomes of partitions with segments that cannot be uploaded."""


class FleetView(View):
    """Scans of many brokers, merged."""

    prints_notes = True

    def __init__(self, result: FleetResult, view: ClusterView | None, election_paths: Sequence[str]) -> None:
        """Takes the result.

        Args:
            result: of the merge.
            view: of the metadata log; None without one.
            election_paths: files of ``--elections`` that were written.
        """
        super().__init__(result.findings)
        self._result = result
        self._view = view
        self._election_paths = election_paths

    def document(self) -> Fleet:
        """The document of ``fleet``; its partitions are an iterator, for there may be very many."""
        result = self._result
        view = self._view
        outcomes = result.outcomes()
        counts = total_counts(result.fleet.counts.values())
        estimated_seconds = None
        if result.rate_bytes_per_second is not None:
            estimated_seconds = round(sum(step.estimated_seconds or 0 for step in result.steps), 1)
        return Fleet(
            run=run_record(),
            cluster_id=result.fleet.cluster_id,
            has_metadata=result.has_metadata,
            rate_bytes_per_second=result.rate_bytes_per_second,
            assumes=result.assumes,
            totals=FleetTotals(
                brokers=len(result.fleet.brokers),
                partitions=len(result.partitions),
                partitions_by_outcome=Outcomes(**{outcome.value: outcomes[outcome] for outcome in FleetOutcome}),
                stuck_bytes=result.stuck_bytes(*STUCK),
                freed_by_election_bytes=result.stuck_bytes(FleetOutcome.ELECT),
                freed_by_repair_bytes=result.stuck_bytes(FleetOutcome.REPAIR),
                replay_bytes=sum(step.replay_bytes for step in result.steps),
                estimated_seconds=estimated_seconds,
            ),
            repair_cover=result.repair_cover,
            steps=[_step(step) for step in result.steps],
            elections=result.elections(),
            upgrade=result.upgrade,
            brokers=[FleetBroker(**members_of_base(FleetBroker, each)) for _, each in sorted(result.fleet.brokers.items())],
            partitions=(_partition(each) for each in result.partitions if each.outcome is not FleetOutcome.HEALTHY),
            unknown_contents=None if view is None else view.unknown.contents(view.other_files),
            status=word_of(counts).value,
            counts=counts,
        )

    def answer(self) -> Answer:
        """How many brokers to repair and with which to begin, and the next command."""
        return _answer(self._result)

    def print_table(self) -> None:
        """Prints the restarts, topics, brokers, the steps of an upgrade, and notes about elections."""
        result = self._result
        _print_steps(result)
        _print_topics(result)
        _print_brokers(result)
        _print_upgrade(result)
        _print_cover(result)
        self._print_elections()
        for each in result.assumes:
            print_text(f"Assumed: {each}.")

    def _print_elections(self) -> None:
        result = self._result
        if result.outcomes()[FleetOutcome.ELECT]:
            print_text("--output json names the replicas to elect; --elections DIR writes files for Kafka's tools.")
        for path in self._election_paths:
            print_text(f"elections: {path}")
        waiting = sum(each.elect is not None and each.condition is not None for each in result.partitions)
        if self._election_paths and waiting:
            print_text(
                f"{pluralize(waiting, 'partition')} in none of these files: who is to lead is not in sync; merge again when it is."
            )
        risks = [each.election_risk for each in result.partitions if each.election_risk is not None]
        risky = sum(risk.outcome is not Risk.NOT_AFFECTED for risk in risks)
        if risky and not result.allows_risk and result.has_metadata:
            print_text(
                f"{pluralize(risky, 'partition')} in no file of --elections: their election may delete data, or that is not known."
            )


# ---------------------------------------------------------------------------------------------------------------------- document


def _step(step: Restart) -> RestartStep:
    members = members_of_base(RestartStep, step)
    if step.estimated_seconds is not None:
        members["estimated_seconds"] = round(step.estimated_seconds, 1)
    return RestartStep(**members)


def _partition(partition: FleetPartition) -> UnhealthyPartition:
    placement = partition.placement
    topic, number, topic_id = partition.key
    return UnhealthyPartition(
        **named(topic, number),
        topic_id=topic_id,
        outcome=partition.outcome,
        elect=partition.elect,
        condition=partition.condition,
        election_risk=partition.election_risk,
        leader=None if placement is None else placement.leader,
        in_sync=None if placement is None else sorted(placement.in_sync),
        not_scanned=partition.not_scanned,
        stuck_bytes=partition.stuck_bytes,
        replicas=[FleetReplica(**members_of_base(FleetReplica, each)) for each in partition.replicas],
    )


# -------------------------------------------------------------------------------------------------------------------- first lines


def _answer(result: FleetResult) -> Answer:
    first = next((step for step in result.steps if step.needs_rebuild and step.hold is None), None)
    if first is None and result.steps:
        first = result.steps[0]
    return f"{faults_text(total_counts(result.fleet.counts.values()))}{_text(result, first)}", _following(result, first)


def _text(result: FleetResult, first: Restart | None) -> str:
    elect = result.outcomes()[FleetOutcome.ELECT]
    not_scanned = result.outcomes()[FleetOutcome.NOT_SCANNED]
    brokers = pluralize(len(result.fleet.brokers), "broker")
    answer = unless_unread("No broker has to be repaired.", result.findings)
    if not result.has_metadata or not_scanned or result.unknown_brokers:
        answer = f"As far as the scans of {brokers} show, no broker has to be repaired."
    if first is not None:
        answer = _repairs_text(result, first)
    faulty = sorted(result.fleet.start_faults)
    if faulty:
        rest = f" {answer}" if result.steps else ""
        answer = f"{pluralize(len(faulty), 'broker')} ({first_of([*map(str, faulty)])}): correct the next start before any restart.{rest}"
    if result.held_brokers:
        answer += (
            f" Do not restart {pluralize(len(result.held_brokers), 'broker')} ({first_of([*map(str, result.held_brokers)])}) yet."
        )
    if elect:
        answer += f" {pluralize(elect, 'partition')}: elect the replica that has every snapshot; nothing has to be rebuilt."
    if not_scanned:
        answer += f" {pluralize(not_scanned, 'partition')} not scanned."
    return answer


def _following(result: FleetResult, first: Restart | None) -> Sequence[str] | Advice:
    """The next command: for faults of a start, then wrong and suspect snapshots, then repairs."""
    brokers = result.fleet.brokers
    faulty = sorted(result.fleet.start_faults)
    if faulty:
        return ["scan", *brokers[faulty[0]].paths]
    doubtful = [each.node_id for partition in result.partitions for each in partition.replicas if each.suspect]
    if doubtful:
        return ["verify", *brokers[min(doubtful)].paths]
    if first is not None:
        return ["plan", *brokers[first.node_id].paths]
    return _after_repairs(result)


def _after_repairs(result: FleetResult) -> Sequence[str] | Advice:
    """The next command where no broker has to be repaired."""
    elect = result.outcomes()[FleetOutcome.ELECT]
    if elect and given_words("elections"):
        return Advice("elect these replicas with kafka-leader-election.sh, which reads the files of --elections")
    if elect and result.has_metadata:
        return ["fleet", *repeated_words("html"), "--elections", "elections"]
    if result.outcomes()[FleetOutcome.NOT_SCANNED] or result.unknown_brokers:
        return Advice("scan each broker with --save-json, then name all these documents here")
    if not result.has_metadata:
        return Advice("run this command again with --metadata, which names each replica and leader")
    unproven = next((each for each in result.partitions if each.outcome in (FleetOutcome.VERIFY, FleetOutcome.WAIT)), None)
    if unproven is None:
        return []
    log_dirs = result.fleet.brokers[unproven.replicas[0].node_id].paths
    return ["cluster", "source", *log_dirs, *option_words("--topic", unproven.key[0])]


def _repairs_text(result: FleetResult, first: Restart) -> str:
    stuck = size_text(result.stuck_bytes(*STUCK))
    text = f"{pluralize(len(result.steps), 'broker')} to repair; {stuck} cannot be uploaded."
    if first.hold is None:
        return f"{text} Begin with broker {first.node_id}."
    return text if result.held_brokers else f"{text} Restart none of them yet."


# ------------------------------------------------------------------------------------------------------------------------- tables


def _print_cover(result: FleetResult) -> None:
    brokers = pluralize(len(result.repair_cover.brokers), "broker")
    if result.steps and not result.repair_cover.is_smallest:
        print_text(
            f"{brokers} to repair, as a greedy choice finds them; at least {result.repair_cover.brokers_at_least} "
            "are needed, whatever the choice: the search for fewer was ended at its limit."
        )
    elif result.steps:
        print_text(f"{brokers} to repair, and no smaller set holds a replica of each partition.")


def _print_brokers(result: FleetResult) -> None:
    names = [state.value for state in ReplicaReadiness]
    counts = {node: dict.fromkeys(names, 0) for node in result.fleet.brokers}
    for partition in result.partitions:
        for replica in partition.replicas:
            counts[replica.node_id][replica.state.value] += 1
    rows = []
    for node, broker in sorted(result.fleet.brokers.items()):
        by_state = [counts[node][name] or "-" for name in names]
        rows.append((node, broker.replicas, size_text(broker.size_bytes), *by_state, broker.document))
    right = ("broker", "replicas", "size", *names)
    print_table(
        "Brokers: replicas by what they need to be uploaded from",
        ("broker", "replicas", "size", *names, "scan"),
        rows,
        right=right,
        drop=("size", *reversed(names)),
    )


def _print_topics(result: FleetResult) -> None:
    counts_of = result.outcomes()
    if_any = (FleetOutcome.NOT_SCANNED, FleetOutcome.GONE)
    outcomes = [outcome.value for outcome in FleetOutcome if counts_of[outcome] or outcome not in if_any]
    topics: dict[str, dict[str, int]] = {}
    stuck: dict[str, int] = {}
    for partition in result.partitions:
        topic = partition.key[0]
        counts = topics.setdefault(topic, dict.fromkeys(outcomes, 0))
        counts[partition.outcome.value] += 1
        if partition.outcome is not FleetOutcome.HEALTHY:
            stuck[topic] = stuck.get(topic, 0) + partition.stuck_bytes
    ordered = sorted(topics, key=lambda topic: (-stuck.get(topic, 0), topic))
    rows = []
    for topic in ordered:
        by_outcome = [topics[topic][name] or "-" for name in outcomes]
        rows.append((topic, size_text(stuck[topic]) if stuck.get(topic) else "-", *by_outcome))
    if rows:
        columns = ("topic", "stuck", *(name.replace("_", " ") for name in outcomes))
        print_table("Topics: partitions by what to do about them", columns, rows, right=columns[1:])


def _print_steps(result: FleetResult) -> None:
    rows = [
        (
            number,
            step.node_id,
            _what_to_do(step),
            step.partitions,
            step.missing,
            size_text(step.replay_bytes),
            "-" if step.estimated_seconds is None else f"{step.estimated_seconds / 60:.1f}",
            size_text(step.freed_bytes),
        )
        for number, step in enumerate(result.steps, 1)
    ]
    if rows:
        columns = ("step", "broker", "do", "partitions", "snapshots", "to read at most", "minutes", "freed")
        right = tuple(name for name in columns if name != "do")
        title = "Restarts, one after the other: each when the one before is in sync again"
        print_table(title, columns, rows, right=right, drop=("minutes", "partitions"))


def _what_to_do(step: Restart) -> str:
    if step.hold is not None:
        return "NOT YET"
    do = "stop, rebuild, start" if step.needs_rebuild else "stop, start"
    return f"{do} (controller)" if step.is_controller else do


def _print_upgrade(result: FleetResult) -> None:
    print_text("An upgrade, up to remote storage: go or no-go for each step, in this order")
    going = [step for step in result.upgrade if _is_restart(step)]
    if going:
        print_text(f"* go, restart one after the other: {', '.join(str(step.node_id) for step in going)}", indent="  ")
    for step in result.upgrade:
        if not _is_restart(step):
            subject = step.kind.value if step.node_id is None else f"{step.kind.value} {step.node_id}"
            following = f". Next: {step.command}" if step.command else ""
            print_text(f"* {step.go.value}, {subject}: {step.evidence}{following}", indent="  ")
    print_line("")


def _is_restart(step: UpgradeStep) -> bool:
    """Whether it is the restart of a broker, and may be done."""
    return step.kind is StepName.RESTART and step.go is Go.GO
