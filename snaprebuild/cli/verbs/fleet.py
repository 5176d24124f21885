"""The verb ``fleet``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import S3Options, WholeNumber, check_paths
from snaprebuild.cli.options.kafka_release import FleetRelease, fleet_release_of
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.cluster.fleet.cluster_view import ClusterView
    from snaprebuild.cluster.fleet.elections import Elections
    from snaprebuild.cluster.fleet.fleet_partition import FleetPartition
    from snaprebuild.cluster.fleet.merge import FleetResult
    from snaprebuild.cluster.fleet.replicas import Broker
    from snaprebuild.cluster.fleet.restart_plan import Restart
    from snaprebuild.cluster.fleet.upgrade_steps import UpgradeStep
    from snaprebuild.documents import fleet as doc

__all__ = ["fleet"]

RATE_MAX = 1_000_000
"""MiB per second."""


class FleetAssumptions(msgspec.Struct, frozen=True):
    """What the scans do not show of the brokers."""

    rate: Annotated[
        int | None,
        Assumption(
            WholeNumber(1, RATE_MAX),
            "MiB/s that a rebuild reads on these brokers, as `plan` measures it. Default: none, no minutes are shown.",
        ),
    ] = None
    retention_bytes: Annotated[
        int | None,
        Assumption(WholeNumber(-1, INT64_MAX), "log.retention.bytes of the brokers, -1 for none. Default: from --metadata."),
    ] = None
    down: Annotated[
        list[int] | None,
        Assumption(
            WholeNumber(0, INT32_MAX),
            "A broker that counts as stopped; may be given several times. Default: none, all brokers start again.",
            is_list=True,
        ),
    ] = None


@verb()
def fleet(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="SCAN.json...", hidden=True)] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="DIR",
            help="KRaft metadata log: __cluster_metadata-0 or a directory above, also as s3://BUCKET/PREFIX. It lists all "
            "replicas, ISR, leaders and controllers. Default: none.",
        ),
    ] = None,
    controller: Annotated[
        list[int] | None,
        typer.Option(
            "--controller",
            metavar="ID",
            click_type=WholeNumber(0, INT32_MAX),
            help="A broker that is also a controller and is restarted last; repeatable. Default: from --metadata.",
        ),
    ] = None,
    elections: Annotated[
        str | None,
        typer.Option(
            "--elections",
            metavar="DIR",
            help="Write files for kafka-reassign-partitions and kafka-leader-election into DIR, which is new or empty. Needs "
            "--metadata. Default: none.",
        ),
    ] = None,
    allow_election_risk: Annotated[
        bool,
        typer.Option(
            "--allow-election-risk",
            help="Write elections even where they may delete data (KAFKA-20732), or where that is unknown. Risk: data within "
            "retention is lost. Default: no.",
        ),
    ] = False,
    kafka_release: FleetRelease = None,
    assumed: FleetAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: merges the scans of many brokers, and shows which replicas to elect and which brokers to repair, in which order.

    SCAN.json is what `scan --output json` prints for one broker (its log directories, or its --server-properties). If one replica
    of a partition has every snapshot, the partition needs an election and no rebuild. The other partitions need a repair of
    brokers: the smallest set that holds a replica of each. These brokers restart one at a time, controllers last. Exit code 1
    if segments of a partition cannot be uploaded.
    """
    from snaprebuild.cluster.fleet.cluster_view import read_cluster_view
    from snaprebuild.cluster.fleet.elections import write_elections
    from snaprebuild.cluster.fleet.merge import merge_scans

    check_paths(files, elections=elections)
    if elections is not None and metadata is None:
        raise UsageError("--elections needs --metadata, which has the replicas of each partition in order")
    release = fleet_release_of(kafka_release)
    out.begin({}, **{f"scan {number}": path for number, path in enumerate(files or (), 1)})
    view = None if metadata is None else read_cluster_view(metadata, s3.run())
    result = merge_scans(
        files or [],
        view,
        frozenset(controller or ()),
        None if assumed.rate is None else assumed.rate << 20,
        release=release,
        retention_bytes=assumed.retention_bytes,
        allows_risk=allow_election_risk,
        down=frozenset(assumed.down or ()),
    )
    written = [] if elections is None else write_elections(result.elections() or (), elections)
    return Result(
        lambda: _document(result, view),
        result.findings,
        lambda: _print(result, written),
        notes=True,
        answer=lambda: _answer(result),
    )


# ------------------------------------------------------------------------------------------------------------------------ JSON


def _document(result: FleetResult, view: ClusterView | None) -> doc.Fleet:
    from snaprebuild.broker.status import total_counts, word_of
    from snaprebuild.cluster.fleet.fleet_partition import Outcome
    from snaprebuild.documents import fleet as doc
    from snaprebuild.snapshots.run_record import run_record

    cover = result.cover
    outcomes = result.outcomes()
    moments = result.elections()
    counts = total_counts(result.fleet.counts.values())
    return doc.Fleet(
        run=run_record(),
        cluster_id=result.fleet.cluster_id,
        has_metadata=result.has_metadata,
        rate_bytes_per_second=result.rate_bytes,
        assumes=result.assumes,
        totals=doc.Totals(
            brokers=len(result.fleet.brokers),
            partitions=len(result.partitions),
            outcomes=doc.Outcomes(**{outcome.value: outcomes[outcome] for outcome in Outcome}),
            stuck_bytes=result.stuck_bytes(Outcome.ELECT, Outcome.REPAIR, Outcome.WAIT),
            freed_by_election_bytes=result.stuck_bytes(Outcome.ELECT),
            freed_by_repair_bytes=result.stuck_bytes(Outcome.REPAIR),
            replay_bytes=sum(step.replay_bytes for step in result.steps),
            estimated_seconds=None if result.rate_bytes is None else round(sum(step.seconds or 0 for step in result.steps), 1),
        ),
        repair=doc.Repair(brokers=cover.brokers, is_smallest=cover.is_smallest, brokers_at_least=cover.at_least),
        steps=[_step(step) for step in result.steps],
        elections=None if moments is None else [_elections(moment, result) for moment in moments],
        upgrade=[_upgrade_step(step) for step in result.upgrade],
        brokers=[_broker(broker) for _, broker in sorted(result.fleet.brokers.items())],
        partitions=(_partition(each) for each in result.partitions if each.outcome is not Outcome.HEALTHY),
        unknown_contents=None if view is None else view.unknown.contents(view.other_files),
        status=word_of(counts).value,
        counts=counts,
    )


def _step(step: Restart) -> doc.Step:
    from snaprebuild.documents import fleet as doc

    return doc.Step(
        node_id=step.node_id,
        is_controller=step.is_controller,
        needs_rebuild=step.needs_rebuild,
        partitions=len(step.partitions),
        missing=step.missing,
        replay_bytes=step.replay_bytes,
        estimated_seconds=None if step.seconds is None else round(step.seconds, 1),
        freed_bytes=step.freed_bytes,
        hold=None if step.hold is None else step.hold.reason,
    )


def _upgrade_step(step: UpgradeStep) -> doc.UpgradeStep:
    from snaprebuild.documents import fleet as doc

    return doc.UpgradeStep(
        step=step.name.value,
        go=step.go.value,
        node_id=step.node_id,
        evidence=step.evidence,
        command=step.command,
    )


def _elections(moment: Elections, result: FleetResult) -> doc.Elections:
    from snaprebuild.documents import fleet as doc
    from snaprebuild.storage.partition_names import named

    return doc.Elections(
        after_step=moment.step or None,
        after_node_id=result.steps[moment.step - 1].node_id if moment.step else None,
        partitions=[
            doc.Election(
                **named(each.topic, each.partition),
                replicas=each.replicas,
                replicas_before=each.replicas_before,
            )
            for each in moment.elections
        ],
    )


def _broker(broker: Broker) -> doc.Broker:
    from snaprebuild.documents import fleet as doc

    return doc.Broker(
        node_id=broker.node_id,
        document=broker.document,
        log_dirs=[doc.LogDir(path=path, shutdown=shutdown) for path, shutdown in sorted(broker.log_dirs.items())],
        replicas=broker.replicas,
        size_bytes=broker.size_bytes,
    )


def _partition(partition: FleetPartition) -> doc.Partition:
    from snaprebuild.documents import fleet as doc
    from snaprebuild.storage.partition_names import named

    placement = partition.placement
    risk = partition.risk
    topic, number, topic_id = partition.key
    return doc.Partition(
        **named(topic, number),
        topic_id=topic_id,
        outcome=partition.outcome.value,
        elect=partition.elect,
        condition=partition.condition,
        election_risk=None if risk is None else doc.ElectionRisk(**{**asdict(risk), "outcome": risk.outcome.value}),
        leader=None if placement is None else placement.leader,
        in_sync=None if placement is None else sorted(placement.in_sync),
        not_scanned=partition.not_scanned,
        stuck_bytes=partition.stuck_bytes,
        replicas=[
            doc.Replica(
                node_id=each.node_id,
                state=each.state.value,
                log_start_offset=each.log_start,
                log_end_offset=each.log_end,
                log_end_at_least=each.at_least,
                high_watermark=each.high_watermark,
                leader_epoch=each.leader_epoch,
                size_bytes=each.size_bytes,
                missing=each.missing,
                suspect=each.suspect,
                blocked_segments=each.blocked_segments,
                stuck_bytes=each.stuck_bytes,
                replay_bytes=each.replay_bytes,
                must_not_lead=None if each.unfit is None else each.unfit.cause,
            )
            for each in partition.replicas
        ],
    )


# ---------------------------------------------------------------------------------------------------------------------- tables


def _answer(result: FleetResult) -> tuple[str, list[str]]:
    from snaprebuild.cli.result import repeated_words, unless_unread
    from snaprebuild.cluster.fleet.fleet_partition import Outcome
    from snaprebuild.findings import first_of, pluralize

    elect = result.outcomes()[Outcome.ELECT]
    not_scanned = result.outcomes()[Outcome.NOT_SCANNED]
    brokers = pluralize(len(result.fleet.brokers), "broker")
    answer = unless_unread("No broker has to be repaired.", result.findings)
    if not result.has_metadata or not_scanned or result.unknown:
        answer = f"As far as the scans of {brokers} show, no broker has to be repaired."
    if result.steps:
        first = next((step for step in result.steps if step.needs_rebuild and step.hold is None), result.steps[0])
        answer = _repairs_text(result, first)
    faulty = sorted(result.fleet.start_faults)
    if faulty:
        rest = f" {answer}" if result.steps else ""
        answer = f"{pluralize(len(faulty), 'broker')} ({first_of([*map(str, faulty)])}): correct the next start before any restart.{rest}"
    if result.held:
        answer += f" Do not restart {pluralize(len(result.held), 'broker')} ({first_of([*map(str, result.held)])}) yet."
    if elect:
        answer += f" {pluralize(elect, 'partition')}: elect the replica that has every snapshot; nothing has to be rebuilt."
    if not_scanned:
        answer += f" {pluralize(not_scanned, 'partition')} not scanned."
    if faulty:
        return answer, ["scan", *sorted(result.fleet.brokers[faulty[0]].log_dirs)]
    if result.steps:
        return answer, ["plan", *sorted(result.fleet.brokers[first.node_id].log_dirs)]
    if elect:
        return answer, ["fleet", *repeated_words("elections", "html"), "--output", "json"]
    if not_scanned or result.unknown or not result.has_metadata:
        return answer, ["scan", "--server-properties", "FILE", "--output", "json"]
    unproven = next((each for each in result.partitions if each.outcome in (Outcome.VERIFY, Outcome.WAIT)), None)
    if unproven is not None:
        log_dirs = sorted(result.fleet.brokers[unproven.replicas[0].node_id].log_dirs)
        return answer, ["cluster", "source", *log_dirs, "--topic", unproven.key[0]]
    return answer, []


def _repairs_text(result: FleetResult, first: Restart) -> str:
    from snaprebuild.cli.result import size_text
    from snaprebuild.cluster.fleet.fleet_partition import Outcome
    from snaprebuild.findings import pluralize

    stuck = size_text(result.stuck_bytes(Outcome.ELECT, Outcome.REPAIR, Outcome.WAIT))
    text = f"{pluralize(len(result.steps), 'broker')} to repair; {stuck} cannot be uploaded."
    if first.hold is None:
        return f"{text} Begin with broker {first.node_id}."
    return text if result.held else f"{text} Restart none of them yet."


def _print(result: FleetResult, written: list[str]) -> None:
    from snaprebuild.cli.result import print_text
    from snaprebuild.cluster.fleet.fleet_partition import Outcome
    from snaprebuild.findings import pluralize

    _print_steps(result)
    _print_topics(result)
    _print_brokers(result)
    _print_upgrade(result)
    outcomes = result.outcomes()
    if result.steps and not result.cover.is_smallest:
        print_text(
            f"{pluralize(len(result.cover.brokers), 'broker')} to repair, as a greedy choice finds them; at least {result.cover.at_least} "
            "are needed, whatever the choice: the search for fewer was ended at its limit."
        )
    elif result.steps:
        print_text(
            f"{pluralize(len(result.cover.brokers), 'broker')} to repair, and no smaller set holds a replica of each partition."
        )
    if outcomes[Outcome.ELECT]:
        print_text("--output json names the replicas to elect; --elections DIR writes files for Kafka's tools.")
    for path in written:
        print_text(f"elections: {path}")
    if written and (left := sum(each.elect is not None and each.condition is not None for each in result.partitions)):
        print_text(f"{pluralize(left, 'partition')} in none of these files: who is to lead is not in sync; merge again when it is.")
    risky = sum(each.risk is not None and each.risk.outcome.value != "not-affected" for each in result.partitions)
    if risky and not result.allows_risk and result.has_metadata:
        print_text(
            f"{pluralize(risky, 'partition')} in no file of --elections: their election may delete data, or that is not known."
        )
    for each in result.assumes:
        print_text(f"Assumed: {each}.")


def _print_brokers(result: FleetResult) -> None:
    from snaprebuild.cli.result import print_table, size_text
    from snaprebuild.cluster.fleet.replicas import ReplicaState

    names = [state.value for state in ReplicaState]
    counts = {node: dict.fromkeys(names, 0) for node in result.fleet.brokers}
    for partition in result.partitions:
        for replica in partition.replicas:
            counts[replica.node_id][replica.state.value] += 1
    rows = [
        (node, broker.replicas, size_text(broker.size_bytes), *(counts[node][name] or "-" for name in names), broker.document)
        for node, broker in sorted(result.fleet.brokers.items())
    ]
    right = ("broker", "replicas", "size", *names)
    print_table(
        "Brokers: replicas by what they need to be uploaded from",
        ("broker", "replicas", "size", *names, "scan"),
        rows,
        right=right,
        drop=("size", *reversed(names)),
    )


def _print_topics(result: FleetResult) -> None:
    from snaprebuild.cli.result import print_table, size_text
    from snaprebuild.cluster.fleet.fleet_partition import Outcome

    counted = {partition.outcome for partition in result.partitions}
    wanted = [outcome.value for outcome in Outcome if outcome in counted or outcome not in (Outcome.NOT_SCANNED, Outcome.GONE)]
    topics: dict[str, dict[str, int]] = {}
    stuck: dict[str, int] = {}
    for partition in result.partitions:
        topic = partition.key[0]
        counts = topics.setdefault(topic, dict.fromkeys(wanted, 0))
        counts[partition.outcome.value] += 1
        if partition.outcome is not Outcome.HEALTHY:
            stuck[topic] = stuck.get(topic, 0) + partition.stuck_bytes
    ordered = sorted(topics, key=lambda topic: (-stuck.get(topic, 0), topic))
    rows = [
        (topic, size_text(stuck[topic]) if stuck.get(topic) else "-", *(topics[topic][name] or "-" for name in wanted))
        for topic in ordered
    ]
    if rows:
        columns = ("topic", "stuck", *(name.replace("_", " ") for name in wanted))
        print_table("Topics: partitions by what to do about them", columns, rows, right=columns[1:])


def _print_steps(result: FleetResult) -> None:
    from snaprebuild.cli.result import print_table, size_text

    rows = [
        (
            number,
            step.node_id,
            _what_to_do(step),
            len(step.partitions),
            step.missing,
            size_text(step.replay_bytes),
            "-" if step.seconds is None else f"{step.seconds / 60:.1f}",
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
    from snaprebuild.cli.result import print_line, print_text

    print_text("An upgrade, up to remote storage: go or no-go for each step, in this order")
    going = [step for step in result.upgrade if _is_restart(step)]
    if going:
        print_text(f"* go, restart one after the other: {', '.join(str(step.node_id) for step in going)}", indent="  ")
    for step in result.upgrade:
        if not _is_restart(step):
            subject = step.name.value if step.node_id is None else f"{step.name.value} {step.node_id}"
            following = f". Next: {step.command}" if step.command else ""
            print_text(f"* {step.go.value}, {subject}: {step.evidence}{following}", indent="  ")
    print_line("")


def _is_restart(step: UpgradeStep) -> bool:
    """Of a broker that may be restarted."""
    from snaprebuild.cluster.fleet.upgrade_steps import Go, StepName

    return step.name is StepName.RESTART and step.go is Go.GO
