"""What a metadata log says, as documents of the verbs on it have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.image_model import (
    BrokerRegistration,
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    directory_text,
    mask_of,
    mechanism_name,
)
from snaprebuild.cluster.metadata.image_result import ImageResult
from snaprebuild.cluster.metadata.proof import Proof

__all__ = ["broker_json", "image_json", "partition_json"]


def image_json(result: ImageResult, topics: list[TopicImage]) -> dict[str, object]:
    """An image with some of its topics; what is secret is not in it."""
    image, checkpoint, transaction = result.image, result.checkpoint, result.open_transaction
    return {
        "path": result.path,
        "offset": image.offset,
        "leader_epoch": image.epoch,
        "timestamp_ms": image.timestamp_ms,
        "checkpoint": None if checkpoint is None else {"end_offset": checkpoint.end_offset, "epoch": checkpoint.epoch},
        "proof": _proof_json(result.proof, result),
        "open_transaction": None
        if transaction is None
        else {"offset": transaction.offset, "name": transaction.name, "record_count": transaction.record_count},
        "features": dict(sorted(image.features.items())),
        "next_producer_id": image.next_producer_id,
        "brokers": [broker_json(each) for _, each in sorted(image.brokers.items())],
        "controllers": [
            {
                "id": each.id,
                "incarnation_id": uuid_to_text(each.incarnation_id),
                "listeners": [_listener(listener) for listener in each.listeners],
                "features": _features(each.features),
            }
            for _, each in sorted(image.controllers.items())
        ],
        "topics": [
            {
                "name": topic.name,
                "topic_id": uuid_to_text(topic.topic_id),
                "partitions": [
                    {"partition": number, **partition_json(partition)} for number, partition in sorted(topic.partitions.items())
                ],
            }
            for topic in topics
        ],
        "configs": [
            _config_json(resource, name, value)
            for resource, values in sorted(image.configs.items())
            for name, value in sorted(values.items())
        ],
        **_security_json(image),
    }


def _config_json(resource: ConfigResource, name: str, value: str) -> dict[str, object]:
    mask = mask_of(resource, name)
    return {
        "resource": str(resource),
        "name": name,
        "value": value if mask is None else None,
        "masked": mask is not None,
        "why_masked": None if mask is None else mask.value,
    }


def _security_json(image: MetadataImage) -> dict[str, object]:
    """Who may do what; the salts and keys of credentials are in no image."""
    return {
        "client_quotas": [
            {"entity": [{"type": kind, "name": name} for kind, name in entity], "quotas": dict(sorted(values.items()))}
            for entity, values in sorted(
                image.client_quotas.items(), key=lambda each: [(kind, name or "") for kind, name in each[0]]
            )
        ],
        "acl_count": len(image.acls),
        "acls": [
            {
                "id": uuid_to_text(acl_id),
                "resource_type": acl.resource_type_name,
                "resource_name": acl.resource_name,
                "pattern_type": acl.pattern_type_name,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation_name,
                "permission": acl.permission_name,
            }
            for acl_id, acl in sorted(image.acls.items())
        ],
        "scram_credential_count": len(image.scram_iterations),
        "scram_credentials": [
            {"user": user, "mechanism": mechanism_name(mechanism), "iterations": iterations}
            for (mechanism, user), iterations in sorted(image.scram_iterations.items())
        ],
        "delegation_token_count": len(image.delegation_tokens),
        "delegation_tokens": [
            {
                "token_id": token_id,
                "owner": token.owner,
                "requester": token.requester,
                "renewers": list(token.renewers),
                "issue_timestamp_ms": token.issue_timestamp_ms,
                "expiration_timestamp_ms": token.expiration_timestamp_ms,
                "max_timestamp_ms": token.max_timestamp_ms,
            }
            for token_id, token in sorted(image.delegation_tokens.items())
        ],
    }


def _proof_json(proof: Proof, result: ImageResult) -> dict[str, object]:
    majority, tail = proof.majority, result.tail
    return {
        "proven_end_offset": proof.end_offset,
        "checkpoint_end_offset": proof.checkpoint_end,
        "log_end_offset": proof.log_end,
        "voters": list(proof.voters),
        "voters_from": proof.voters_origin.value,
        "shared_end_offsets": {} if majority is None else {str(node): end for node, end in majority.common_ends},
        "majority_end_offset": None if majority is None else majority.end_offset,
        "majority": None if majority is None else majority.why,
        "not_counted": [{"path": path, "why": why} for path, why in proof.not_counted],
        "unproven": None
        if tail is None
        else {
            "first_offset": tail.first_offset,
            "change_count": tail.change_count,
            "brokers": sorted(tail.brokers),
            "partitions": sorted(tail.partitions),
        },
    }


def broker_json(broker: BrokerRegistration) -> dict[str, object]:
    """A registration, as documents of these verbs have it."""
    cordoned = broker.cordoned_directories
    return {
        "id": broker.id,
        "epoch": broker.epoch,
        "incarnation_id": uuid_to_text(broker.incarnation_id),
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "directories": [uuid_to_text(each) for each in broker.directories],
        "cordoned_directories": None if cordoned is None else [uuid_to_text(each) for each in cordoned],
        "rack": broker.rack,
        "listeners": [_listener(each) for each in broker.listeners],
        "features": _features(broker.features),
    }


def _listener(listener: Any) -> dict[str, object]:
    return {name: getattr(listener, name) for name in ("name", "host", "port", "security_protocol")}


def _features(features: Iterable[Any]) -> dict[str, list[int]]:
    return {each.name: [each.min_version, each.max_version] for each in features}


def partition_json(partition: PartitionRegistration) -> dict[str, object]:
    """A partition, as documents of these verbs have it."""
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "leader_recovery_state": partition.leader_recovery_state.name,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "directories": [directory_text(each) for each in partition.directories],
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
    }
