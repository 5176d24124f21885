"""What a metadata log says, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from snaprebuild.cli.result import print_table, print_text, shown, time_text
from snaprebuild.cluster.metadata.image_model import (
    Mask,
    MetadataImage,
    ResourceType,
    TopicImage,
    mask_of,
    mechanism_name,
    remark_on_releases,
)
from snaprebuild.cluster.metadata.image_result import ImageResult
from snaprebuild.cluster.metadata.proof import unproven_reason
from snaprebuild.cluster.metadata.registered_model import (
    LOST_DIRECTORY,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
    SupportedFeature,
    directory_text,
)
from snaprebuild.findings import first_of, pluralize

__all__ = ["ids_text", "print_image"]


def ids_text(ids: Iterable[int]) -> str:
    """Broker ids with commas, or a dash."""
    return ",".join(map(str, ids)) or "-"


def print_image(result: ImageResult, topics: list[TopicImage]) -> None:
    """An image with some of its topics; what is secret is not shown."""
    image = result.image
    _print_nodes(image)
    rows: list[tuple[object, ...]] = [
        (f"{topic.name}-{number}", *_partition_row(each)) for topic in topics for number, each in sorted(topic.partitions.items())
    ]
    columns = ("partition", "leader", "leader epoch", "partition epoch", "replicas", "ISR", "ELR", "remarks")
    _print_table("Partitions", columns, rows, right=("leader", "leader epoch", "partition epoch"))
    _print_configs(image, {each.name for each in topics})
    _print_security(image)
    _print_table("Features", ("feature", "level"), sorted(image.features.items()), right=("level",))
    _print_origin(result, topics)
    _print_proof(result)


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> None:
    """One that has rows."""
    if rows:
        print_table(title, columns, rows, right=right)


def _print_nodes(image: MetadataImage) -> None:
    rows: list[tuple[object, ...]] = [
        (each.id, each.epoch, _state(each), _ids_of(each.directories), each.rack or "-", _address(each))
        for _, each in sorted(image.brokers.items())
    ]
    columns = ("broker", "epoch", "state", "directories", "rack", "listeners")
    _print_table("Brokers", columns, rows, right=("broker", "epoch"))
    rows = [
        (each.id, directory_text(each.incarnation_id), _address(each), _unsupported(each.features, image.features))
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
    """Who may do what, and how much."""
    rows: list[tuple[object, ...]] = [
        (
            each.principal,
            each.permission_name,
            each.operation_name,
            each.resource_type_name,
            each.resource_name,
            each.pattern_type_name,
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
    rows = [
        (", ".join(f"{kind} {'(default)' if of is None else of}" for kind, of in entity), name, f"{value:g}")
        for entity, values in sorted(image.client_quotas.items(), key=lambda each: [(kind, of or "") for kind, of in each[0]])
        for name, value in sorted(values.items())
    ]
    _print_table("Quotas", ("of", "quota", "value"), rows, right=("value",))


def _print_origin(result: ImageResult, topics: list[TopicImage]) -> None:
    image = result.image
    checkpoint = result.checkpoint
    origin = "the beginning of the log" if checkpoint is None else f"the checkpoint of everything below {checkpoint.end_offset}"
    ids = "none given out" if image.next_producer_id < 0 else f"all below {image.next_producer_id}"
    of_time = "" if image.timestamp_ms < 0 else f", {time_text(image.timestamp_ms)}"
    print_text(f"{shown(result.path)}: up to offset {image.offset}, leader epoch {image.epoch}{of_time}, from {origin}")
    print_text(
        f"{pluralize(len(image.brokers), 'broker')}, {pluralize(len(topics), 'topic')}, "
        f"{pluralize(sum(len(each.partitions) for each in topics), 'partition')}; producer ids: {ids}"
    )


def _print_proof(result: ImageResult) -> None:
    proof = result.proof
    by = (
        "a majority of the voters"
        if proof.majority is not None and proof.majority.end_offset == proof.end_offset
        else "a checkpoint"
    )
    if result.tail is None:
        why = f": {proof.majority.why}" if by != "a checkpoint" and proof.majority is not None else ""
        print_text(f"proven to be committed, by {by}{why}")
    else:
        proven = f"proven to be committed up to offset {proof.end_offset - 1}, by {by}" if proof.end_offset else "nothing is proven"
        changed = [f"broker {each}" for each in sorted(result.tail.brokers)] + sorted(result.tail.partitions)
        what = f"changes {first_of(changed, most=10)}" if changed else "changes no broker and no partition"
        print_text(f"{proven}; what follows {what}. {unproven_reason(proof)}")
    if result.unknown:
        print_text(f"Not covered: {result.unknown.sentence}.")


def _ids_of(directories: Iterable[bytes]) -> str:
    """Directory ids with commas, or a dash."""
    return ",".join(map(directory_text, directories)) or "-"


def _state(broker: BrokerRegistration) -> str:
    states = [*(["fenced"] if broker.fenced else []), *(["shutting down"] if broker.in_controlled_shutdown else [])]
    return ", ".join(states) or "active"


def _address(node: Any) -> str:
    return ",".join(f"{each.name}://{each.host}:{each.port}" for each in node.listeners) or "-"


def _unsupported(features: Iterable[SupportedFeature], levels: Mapping[str, int]) -> str:
    """The features whose level in the cluster a node does not support: it cannot be running."""
    return "; ".join(
        f"supports {each.name} {each.min_version} to {each.max_version}, the cluster has {levels[each.name]}"
        for each in features
        if not each.min_version <= levels.get(each.name, each.min_version) <= each.max_version
    )


def _partition_row(partition: PartitionRegistration) -> tuple[object, ...]:
    remarks = [
        *([f"adding {ids_text(partition.adding)}"] if partition.adding else []),
        *([f"removing {ids_text(partition.removing)}"] if partition.removing else []),
        *([f"last known ELR {ids_text(partition.last_known_elr)}"] if partition.last_known_elr else []),
        *(["recovering from an unclean election"] if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING else []),
        *(["a directory is lost"] if LOST_DIRECTORY in partition.directories else []),
    ]
    leader = "-" if partition.leader < 0 else partition.leader
    return (
        *(leader, partition.leader_epoch, partition.partition_epoch, ids_text(partition.replicas), ids_text(partition.isr)),
        *(ids_text(partition.elr), ", ".join(remarks) or "-"),
    )
