"""The contents of a metadata log: the views of ``cluster image``, ``cluster history`` and ``cluster isr``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cli.answer import unless_unread
from snaprebuild.cli.printing import draws_blocks, line_width, print_line, print_table, print_text
from snaprebuild.cli.render.status import judgement_lines
from snaprebuild.cli.render.timeline_chart import BLOCKS, LETTERS, ChartLine, Glyphs, chart_text
from snaprebuild.cli.value_text import shown, time_text
from snaprebuild.cli.view import Answer, View
from snaprebuild.cluster.metadata.history import (
    BrokerHistoryEntry,
    BrokerTimeline,
    HistoryResult,
    Moment,
    PartitionTimeline,
)
from snaprebuild.cluster.metadata.image_model import (
    ConfigResource,
    Mask,
    MetadataImage,
    ResourceType,
    TopicImage,
    mask_of,
    mechanism_name,
    remark_on_releases,
    setting_of,
)
from snaprebuild.cluster.metadata.image_result import ImageResult
from snaprebuild.cluster.metadata.isr_check import IsrCheckResult
from snaprebuild.cluster.metadata.proof import CommitProof, unproven_reason
from snaprebuild.cluster.metadata.registered_model import (
    LOST_DIRECTORY,
    BrokerRegistration,
    FeatureLevels,
    LeaderRecoveryState,
    PartitionRegistration,
)
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.documents import cluster_metadata as doc
from snaprebuild.documents.cluster import ClusterIsr
from snaprebuild.findings import Finding, first_of, pluralize
from snaprebuild.published import members_of_base
from snaprebuild.storage.partition_names import named

__all__ = ["HistoryView", "ImageView", "IsrView"]

State = TypeVar("State")


# ---------------------------------------------------------------------------------------------------------------- cluster image


class ImageView(View):
    """An image with some of its topics; the salts and keys of credentials are in no image."""

    def __init__(self, result: ImageResult, topics: list[TopicImage], absent: Sequence[Finding]) -> None:
        """Takes the selected topics, and the findings about partitions that are named and not in the image."""
        super().__init__([*result.findings, *absent])
        self._result = result
        self._topics = topics

    def document(self) -> doc.ClusterImage:
        image = self._result.image
        checkpoint = self._result.checkpoint
        return doc.ClusterImage(
            path=self._result.path,
            offset=image.offset,
            leader_epoch=image.epoch,
            timestamp_ms=image.timestamp_ms,
            checkpoint=None if checkpoint is None else OffsetAndEpoch(checkpoint.end_offset, checkpoint.epoch),
            proof=_proof(self._result.proof, self._result),
            open_transaction=self._result.open_transaction,
            features=dict(sorted(image.features.items())),
            next_producer_id=image.next_producer_id,
            brokers=[each for _, each in sorted(image.brokers.items())],
            controllers=[each for _, each in sorted(image.controllers.items())],
            topics=map(_topic, self._topics),
            configs=(
                _config(resource, name, value)
                for resource, values in sorted(image.configs.items())
                for name, value in sorted(values.items())
            ),
            client_quotas=_client_quotas(image),
            acl_count=len(image.acls),
            acls=(each for _, each in sorted(image.acls.items())),
            scram_credential_count=len(image.scram_iterations),
            scram_credentials=[
                doc.ScramCredential(user=user, mechanism=mechanism_name(mechanism), iterations=iterations)
                for (mechanism, user), iterations in sorted(image.scram_iterations.items())
            ],
            delegation_token_count=len(image.delegation_tokens),
            delegation_tokens=[token for _, token in sorted(image.delegation_tokens.items())],
            unknown_contents=self._result.unknown.contents(self._result.other_files),
        )

    def print_table(self) -> None:
        image = self._result.image
        _print_nodes(image)
        rows: list[tuple[object, ...]] = [
            (f"{topic.name}-{number}", *_partition_row(each))
            for topic in self._topics
            for number, each in sorted(topic.partitions.items())
        ]
        columns = ("partition", "leader", "leader epoch", "partition epoch", "replicas", "ISR", "ELR", "remarks")
        _print_table("Partitions", columns, rows, right=("leader", "leader epoch", "partition epoch"))
        _print_configs(image, {each.name for each in self._topics})
        _print_security(image)
        _print_table("Features", ("feature", "level"), sorted(image.features.items()), right=("level",))
        _print_origin(self._result, self._topics)
        _print_proof(self._result)


def _ids_text(ids: Iterable[int]) -> str:
    """Broker ids with commas, or a dash."""
    return ",".join(map(str, ids)) or "-"


def _proof(proof: CommitProof, result: ImageResult) -> doc.ImageProof:
    majority = proof.majority
    return doc.ImageProof(
        proven_end_offset=proof.proven_end_offset,
        checkpoint_end_offset=proof.checkpoint_end_offset,
        log_end_offset=proof.log_end_offset,
        voters=proof.voters,
        voters_source=proof.voters_source,
        shared_end_offsets={} if majority is None else {str(node): end for node, end in majority.common_ends},
        majority_end_offset=None if majority is None else majority.end_offset,
        majority_reason=None if majority is None else majority.reason,
        not_counted=proof.not_counted,
        unproven=result.unproven,
    )


def _topic(topic: TopicImage) -> doc.ImageTopic:
    return doc.ImageTopic(
        topic=topic.name,
        topic_id=uuid_to_text(topic.topic_id),
        partitions=[
            doc.ImagePartition(**members_of_base(PartitionRegistration, partition), **named(topic.name, number))
            for number, partition in sorted(topic.partitions.items())
        ],
    )


def _config(resource: ConfigResource, name: str, value: str) -> doc.ConfigEntry:
    mask = mask_of(resource, name)
    setting = setting_of(resource, name)
    return doc.ConfigEntry(
        resource=str(resource),
        name=name,
        value=value if mask is None else None,
        is_masked=mask is not None,
        mask_reason=mask,
        known_to=None if setting is None else setting.releases_text,
    )


def _client_quotas(image: MetadataImage) -> list[doc.ClientQuota]:
    quotas = sorted(image.client_quotas.items(), key=lambda each: [(kind, name or "") for kind, name in each[0]])
    return [
        doc.ClientQuota(
            entity=[doc.QuotaEntity(type=kind, name=name) for kind, name in entity], quotas=dict(sorted(values.items()))
        )
        for entity, values in quotas
    ]


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Prints a table if it has rows."""
    if rows:
        print_table(title, columns, rows, right=right)


def _print_nodes(image: MetadataImage) -> None:
    rows: list[tuple[object, ...]] = [
        (each.node_id, each.epoch, _state(each), ",".join(each.directories) or "-", each.rack or "-", _address(each))
        for _, each in sorted(image.brokers.items())
    ]
    columns = ("broker", "epoch", "state", "directories", "rack", "listeners")
    _print_table("Brokers", columns, rows, right=("broker", "epoch"))
    rows = [
        (each.node_id, each.incarnation_id, _address(each), _unsupported(each.features, image.features))
        for _, each in sorted(image.controllers.items())
    ]
    _print_table("Controllers", ("controller", "incarnation", "listeners", "remarks"), rows, right=("controller",))


def _print_configs(image: MetadataImage, topics: set[str]) -> None:
    """The last column is only there if a release that may run in this cluster does not know a setting."""
    rows = _config_rows(image, topics)
    columns = ["of", "name", "value"]
    if any(row[-1] for row in rows):
        columns.append("known to Kafka")
    _print_table("Configurations", columns, [row[: len(columns)] for row in rows])


def _config_rows(image: MetadataImage, topics: set[str]) -> list[tuple[object, ...]]:
    hidden = {Mask.SECRET: "(secret)", Mask.UNKNOWN_NAME: "(not shown: unknown name)"}
    rows: list[tuple[object, ...]] = []
    for resource, values in sorted(image.configs.items()):
        if resource.type != ResourceType.TOPIC or resource.name in topics:
            for name, value in sorted(values.items()):
                mask = mask_of(resource, name)
                rows.append(
                    (str(resource), name, value if mask is None else hidden[mask], remark_on_releases(image, resource, name))
                )
    return rows


def _print_security(image: MetadataImage) -> None:
    """Prints ACLs, credentials, tokens and quotas."""
    rows: list[tuple[object, ...]] = [
        (
            each.principal,
            each.permission,
            each.operation,
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            each.host,
        )
        for _, each in sorted(image.acls.items(), key=lambda each: (each[1].principal, each[1].resource_name, each[0]))
    ]
    _print_table("ACLs", ("principal", "permission", "operation", "on", "name", "pattern", "host"), rows)
    rows = [(user, mechanism_name(mechanism), count) for (mechanism, user), count in sorted(image.scram_iterations.items())]
    _print_table("SCRAM credentials", ("user", "mechanism", "iterations"), rows, right=("iterations",))
    rows = [
        (token_id, each.owner, each.requester, ",".join(each.renewers) or "-", time_text(each.expiration_timestamp_ms))
        for token_id, each in sorted(image.delegation_tokens.items())
    ]
    _print_table("Delegation tokens", ("token", "owner", "requester", "renewers", "expires"), rows)
    rows = []
    for entity, values in sorted(image.client_quotas.items(), key=lambda each: [(kind, of or "") for kind, of in each[0]]):
        subject = ", ".join(f"{kind} {'(default)' if of is None else of}" for kind, of in entity)
        rows += [(subject, name, f"{value:g}") for name, value in sorted(values.items())]
    _print_table("Quotas", ("of", "quota", "value"), rows, right=("value",))


def _print_origin(result: ImageResult, topics: list[TopicImage]) -> None:
    image = result.image
    checkpoint = result.checkpoint
    if checkpoint is None:
        origin = "the beginning of the log"
    else:
        origin = f"the checkpoint of everything below {checkpoint.end_offset}"
    ids = "none given out" if image.next_producer_id < 0 else f"all below {image.next_producer_id}"
    of_time = "" if image.timestamp_ms < 0 else f", {time_text(image.timestamp_ms)}"
    print_text(f"{shown(result.path)}: up to offset {image.offset}, leader epoch {image.epoch}{of_time}, from {origin}")
    print_text(
        f"{pluralize(len(image.brokers), 'broker')}, {pluralize(len(topics), 'topic')}, "
        f"{pluralize(sum(len(each.partitions) for each in topics), 'partition')}; producer ids: {ids}"
    )


def _print_proof(result: ImageResult) -> None:
    proof = result.proof
    majority = proof.majority
    by_majority = majority is not None and majority.end_offset == proof.proven_end_offset
    by = "a majority of the voters" if by_majority else "a checkpoint"
    if result.unproven is None:
        reason = f": {majority.reason}" if by_majority and majority is not None else ""
        print_text(f"proven to be committed, by {by}{reason}")
    else:
        proven = "nothing is proven"
        if proof.proven_end_offset:
            proven = f"proven to be committed up to offset {proof.proven_end_offset - 1}, by {by}"
        changed = [*(f"broker {each}" for each in result.unproven.brokers), *result.unproven.partitions]
        what = f"changes {first_of(changed, most=10)}" if changed else "changes no broker and no partition"
        print_text(f"{proven}; what follows {what}. {unproven_reason(proof)}")
    if result.unknown:
        print_text(f"Not covered: {result.unknown.sentence}.")


def _state(broker: BrokerRegistration) -> str:
    states = []
    if broker.fenced:
        states.append("fenced")
    if broker.in_controlled_shutdown:
        states.append("shutting down")
    return ", ".join(states) or "active"


def _address(node: Any) -> str:
    return ",".join(f"{each.name}://{each.host}:{each.port}" for each in node.listeners) or "-"


def _unsupported(features: Mapping[str, FeatureLevels], levels: Mapping[str, int]) -> str:
    """The features whose level in the cluster a node does not support: it cannot be running."""
    return "; ".join(
        f"supports {name} {each.min_level} to {each.max_level}, the cluster has {levels[name]}"
        for name, each in features.items()
        if not each.min_level <= levels.get(name, each.min_level) <= each.max_level
    )


def _partition_row(partition: PartitionRegistration) -> tuple[object, ...]:
    remarks = []
    if partition.adding:
        remarks.append(f"adding {_ids_text(partition.adding)}")
    if partition.removing:
        remarks.append(f"removing {_ids_text(partition.removing)}")
    if partition.last_known_elr:
        remarks.append(f"last known ELR {_ids_text(partition.last_known_elr)}")
    if partition.leader_recovery_state == LeaderRecoveryState.RECOVERING:
        remarks.append("recovering from an unclean election")
    if LOST_DIRECTORY in partition.directories:
        remarks.append("a directory is lost")
    leader = "-" if partition.leader < 0 else partition.leader
    return (
        *(leader, partition.leader_epoch, partition.partition_epoch, _ids_text(partition.replicas), _ids_text(partition.isr)),
        *(_ids_text(partition.elr), ", ".join(remarks) or "-"),
    )


# -------------------------------------------------------------------------------------------------------------- cluster history


class HistoryView(View):
    """The selected part of a history."""

    def __init__(self, result: HistoryResult) -> None:
        super().__init__(result.findings)
        self._result = result

    def document(self) -> doc.ClusterHistory:
        result = self._result
        broker = result.timelines.broker
        return doc.ClusterHistory(
            path=result.path,
            first_offset=result.first_offset,
            last_offset=result.last_offset,
            last_timestamp_ms=result.last_timestamp_ms,
            proven_end_offset=result.proof.proven_end_offset,
            partitions=map(_partition_history, result.timelines.partitions.values()),
            broker=None if broker is None else doc.BrokerHistory(node_id=broker.node_id, entries=list(broker.entries)),
            unknown_contents=result.unknown.contents(result.other_files),
        )

    def print_table(self) -> None:
        result = self._result
        for timeline in result.timelines.partitions.values():
            _print_partition(timeline, result)
        broker = result.timelines.broker
        if broker is not None and broker.entries:
            _print_broker(broker, result)
        entries = sum(len(each.entries) for each in result.timelines.partitions.values())
        entries += 0 if broker is None else len(broker.entries)
        since = "the beginning" if result.first_offset == 0 else f"offset {result.first_offset}"
        if result.first_offset == result.checkpoint_end:
            since = f"a checkpoint of everything below {since}"
        until = f" to offset {result.last_offset}" if result.last_offset >= result.first_offset else ""
        print_text(f"{shown(result.path)}: {pluralize(entries, 'entry', 'entries')}, from {since}{until}")
        end = result.proof.proven_end_offset
        if end > result.last_offset:
            print_text(unless_unread("all of it is proven to be committed", result.findings))
        else:
            print_text(f"offsets marked with a star, from {end} on, are not proven to be committed")
        if result.unknown:
            print_text(f"Not covered: {result.unknown.sentence}.")


def _partition_history(timeline: PartitionTimeline) -> doc.PartitionHistory:
    return doc.PartitionHistory(
        **named(timeline.topic, timeline.partition),
        topic_id=uuid_to_text(timeline.topic_id),
        entries=list(timeline.entries),
    )


def _print_partition(timeline: PartitionTimeline, result: HistoryResult) -> None:
    entries = list(timeline.entries)
    brokers = sorted({each for entry in entries if entry.registration is not None for each in entry.registration.replicas})
    glyphs, legend = _glyphs()

    def glyph_of(broker_id: int) -> Callable[[PartitionRegistration | None], str]:
        return lambda state: _partition_glyph(glyphs, state, broker_id)

    lines = [ChartLine(f"broker {each}", glyph_of(each)) for each in brokers]
    print_text(f"{timeline.topic}-{timeline.partition}, topic id {uuid_to_text(timeline.topic_id)}")
    print_line("")
    _print_chart([(entry.timestamp_ms, entry.registration) for entry in entries], lines, result, legend)
    rows = []
    for entry in entries:
        state = entry.registration
        state_cells = ("-", "-", "-", "-") if state is None else _partition_cells(state)
        rows.append((*_when(entry, result), *state_cells, "; ".join(entry.changes)))
    columns = ("offset", "time", "leader", "epochs", "ISR", "ELR", "what")
    print_table("Changes", columns, rows, right=("offset", "leader", "epochs"), drop=("ELR", "epochs"))


def _partition_glyph(glyphs: Glyphs, state: PartitionRegistration | None, broker_id: int) -> str:
    if state is None or broker_id not in state.replicas:
        return glyphs.none
    if state.leader == broker_id:
        return glyphs.leader
    if broker_id in state.isr:
        return glyphs.in_sync
    return glyphs.eligible if broker_id in state.elr else glyphs.neither


def _partition_cells(state: PartitionRegistration) -> tuple[object, ...]:
    leader = "-" if state.leader < 0 else state.leader
    return leader, f"{state.leader_epoch}/{state.partition_epoch}", _ids_text(state.isr), _ids_text(state.elr)


def _print_broker(timeline: BrokerTimeline, result: HistoryResult) -> None:
    entries = list(timeline.entries)
    glyphs, _ = _glyphs()
    most = max((entry.replicas for entry in entries), default=0)
    lines: list[ChartLine[BrokerHistoryEntry]] = [
        ChartLine("state", lambda entry: _broker_glyph(glyphs, entry.registration)),
        ChartLine("leads", lambda entry: _height(glyphs, entry.leads, most)),
        ChartLine("in ISR", lambda entry: _height(glyphs, entry.in_isr, most)),
    ]
    print_line(f"broker {timeline.node_id}")
    print_line("")
    legend = (
        f"{glyphs.leader} active, {glyphs.eligible} shutting down, {glyphs.neither} fenced, blank: not registered; heights are of the "
        f"{pluralize(most, 'replica')} that it had at most"
    )
    _print_chart([(entry.timestamp_ms, entry) for entry in entries], lines, result, legend)
    rows = [
        (
            *_when(entry, result),
            "-" if entry.registration is None else entry.registration.epoch,
            *(entry.leads, entry.in_isr, entry.in_elr, entry.replicas, "; ".join(entry.changes)),
        )
        for entry in entries
    ]
    columns = ("offset", "time", "epoch", "leads", "in ISR", "in ELR", "replicas", "what")
    print_table("Changes", columns, rows, right=("offset", *columns[2:-1]), drop=("in ELR", "replicas", "epoch"))


def _broker_glyph(glyphs: Glyphs, state: BrokerRegistration | None) -> str:
    if state is None:
        return glyphs.none
    if state.fenced:
        return glyphs.neither
    return glyphs.eligible if state.in_controlled_shutdown else glyphs.leader


def _height(glyphs: Glyphs, count: int, most: int) -> str:
    """One of the heights; the lowest only for none."""
    steps = len(glyphs.heights) - 1
    return glyphs.heights[0 if count == 0 or most == 0 else max(1, count * steps // most)]


def _glyphs() -> tuple[Glyphs, str]:
    """The characters of a partition's chart, and what they mean."""
    glyphs = BLOCKS if sys.stdout.isatty() and draws_blocks() else LETTERS
    meanings = (
        f"{glyphs.leader} leader, {glyphs.in_sync} in sync, {glyphs.eligible} eligible leader replica, {glyphs.neither} not in sync"
    )
    return glyphs, f"{meanings}, blank: no replica"


def _print_chart(changes: list[tuple[int, State]], lines: list[ChartLine[State]], result: HistoryResult, legend: str) -> None:
    print_line(chart_text(changes, max(result.last_timestamp_ms, changes[-1][0]), lines, line_width()))
    print_text(f" {legend}")
    print_line("")


def _when(moment: Moment, result: HistoryResult) -> tuple[str, str]:
    """Offset, with a star where it is not proven to be committed, and time."""
    star = "*" if moment.offset >= result.proof.proven_end_offset else ""
    offset = f"{moment.offset}{star}" if moment.offset >= 0 else "-"
    return offset, time_text(moment.timestamp_ms) if moment.timestamp_ms >= 0 else "-"


# ----------------------------------------------------------------------------------------------------------------- cluster isr


class IsrView(View):
    """Replicas that joined or stayed in sync against the invariant of KIP-903."""

    names_unread = True

    def __init__(self, result: IsrCheckResult) -> None:
        super().__init__(result.findings)
        self._result = result

    def document(self) -> ClusterIsr:
        result = self._result
        return ClusterIsr(
            path=result.log.path,
            first_offset=result.first_offset,
            checkpoint_path=None if result.checkpoint is None else result.checkpoint.path,
            end_offset=result.end_offset,
            proven_end_offset=result.proof.proven_end_offset,
            isr_changes=result.isr_changes,
            joins=result.joins,
            totals=result.totals,
            events=result.events,
            unknown_contents=result.log.unknown.contents(result.log.other_files),
        )

    def answer(self) -> Answer:
        """How many members of in-sync replicas the log contradicts. What corrects them is Kafka's own."""
        faults = ", ".join(f"{count} {fault.value}" for fault, count in self._result.totals.items() if count)
        changes = f"{pluralize(self._result.isr_changes, 'change')} of in-sync replicas"
        return judgement_lines(self.findings, f"{changes}: {faults or unless_unread('none against the rules', self.findings)}"), []

    def print_table(self) -> None:
        result = self._result
        rows = [
            (
                f"{each.offset}{'' if each.is_proven else '*'}",
                time_text(each.timestamp_ms),
                each.topic_partition,
                each.node_id,
                each.broker_epoch,
                ", ".join(map(str, each.isr_before)) or "-",
                ", ".join(map(str, each.isr)) or "-",
                each.kind.value,
                each.isr_fault.value,
            )
            for each in result.events
        ]
        if rows:
            title = "Replicas that joined or stayed in sync, and the evidence for it"
            columns = ("offset", "time", "partition", "broker", "epoch", "in sync before", "after", "how", "what")
            print_table(title, columns, rows, right=("offset", "epoch"), drop=("epoch", "time"))
        where = "its beginning" if result.checkpoint is None else "a checkpoint, before which nothing is known"
        offsets = f"offsets {result.first_offset} to {result.end_offset - 1}"
        if result.end_offset <= result.first_offset:
            offsets = "no offsets"
        print_text(
            f"{offsets}, from {where}: "
            f"{pluralize(result.isr_changes, 'change')} of in-sync replicas, {pluralize(result.joins, 'replica')} joined"
        )
        end = result.proof.proven_end_offset
        if result.end_offset > end:
            reason = unproven_reason(result.proof)
            print_text(f"offsets from {end} on, marked with a star, are not proven to be committed: {reason}")
        else:
            print_text(unless_unread("all of it is proven to be committed", result.findings))
        if result.log.unknown:
            print_text(f"Not covered: {result.log.unknown.sentence}.")
