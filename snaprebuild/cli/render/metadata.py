"""What a metadata log holds, as the documents of ``cluster image`` and ``cluster history``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cli.render.shared_parts import unknown_contents
from snaprebuild.cluster.metadata.image_model import ConfigResource, MetadataImage, TopicImage, mask_of, mechanism_name, setting_of
from snaprebuild.cluster.metadata.image_result import ImageResult
from snaprebuild.cluster.metadata.proof import Proof
from snaprebuild.cluster.metadata.registered_model import BrokerRegistration, PartitionRegistration, directory_text
from snaprebuild.documents import cluster_metadata as doc
from snaprebuild.storage.partition_names import named

if TYPE_CHECKING:
    from snaprebuild.cluster.metadata.history import BrokerEntry, BrokerTimeline, HistoryResult, PartitionTimeline

__all__ = ["history_document", "image_document"]


# ---------------------------------------------------------------------------------------------------------------- cluster image


def image_document(result: ImageResult, topics: list[TopicImage]) -> doc.ClusterImage:
    """An image with some of its topics; the salts and keys of credentials are in no image."""
    image = result.image
    checkpoint = result.checkpoint
    transaction = result.open_transaction
    return doc.ClusterImage(
        path=result.path,
        offset=image.offset,
        leader_epoch=image.epoch,
        timestamp_ms=image.timestamp_ms,
        checkpoint=None if checkpoint is None else doc.ImageCheckpoint(end_offset=checkpoint.end_offset, epoch=checkpoint.epoch),
        proof=_proof(result.proof, result),
        open_transaction=None
        if transaction is None
        else doc.OpenTransaction(offset=transaction.offset, name=transaction.name, record_count=transaction.record_count),
        features=dict(sorted(image.features.items())),
        next_producer_id=image.next_producer_id,
        brokers=[_broker(each) for _, each in sorted(image.brokers.items())],
        controllers=[
            doc.Controller(
                node_id=each.id,
                incarnation_id=uuid_to_text(each.incarnation_id),
                listeners=[_listener(listener) for listener in each.listeners],
                features=_features(each.features),
            )
            for _, each in sorted(image.controllers.items())
        ],
        topics=map(_topic, topics),
        configs=(
            _config(resource, name, value)
            for resource, values in sorted(image.configs.items())
            for name, value in sorted(values.items())
        ),
        client_quotas=_client_quotas(image),
        acl_count=len(image.acls),
        acls=_acls(image),
        scram_credential_count=len(image.scram_iterations),
        scram_credentials=[
            doc.ScramCredential(user=user, mechanism=mechanism_name(mechanism), iterations=iterations)
            for (mechanism, user), iterations in sorted(image.scram_iterations.items())
        ],
        delegation_token_count=len(image.delegation_tokens),
        delegation_tokens=_delegation_tokens(image),
        unknown_contents=unknown_contents(result.unknown, result.other_files),
    )


def _proof(proof: Proof, result: ImageResult) -> doc.Proof:
    majority = proof.majority
    tail = result.tail
    return doc.Proof(
        proven_end_offset=proof.end_offset,
        checkpoint_end_offset=proof.checkpoint_end,
        log_end_offset=proof.log_end,
        voters=proof.voters,
        voters_source=proof.voters_origin.value,
        shared_end_offsets={} if majority is None else {str(node): end for node, end in majority.common_ends},
        majority_end_offset=None if majority is None else majority.end_offset,
        majority_reason=None if majority is None else majority.why,
        not_counted=[doc.UncountedLog(path=path, reason=reason) for path, reason in proof.not_counted],
        unproven=None
        if tail is None
        else doc.Unproven(
            first_offset=tail.first_offset,
            change_count=tail.change_count,
            brokers=sorted(tail.brokers),
            partitions=sorted(tail.partitions),
        ),
    )


def _topic(topic: TopicImage) -> doc.Topic:
    return doc.Topic(
        topic=topic.name,
        topic_id=uuid_to_text(topic.topic_id),
        partitions=[
            doc.Partition(**named(topic.name, number), **_state_members(partition))
            for number, partition in sorted(topic.partitions.items())
        ],
    )


def _config(resource: ConfigResource, name: str, value: str) -> doc.Config:
    mask = mask_of(resource, name)
    setting = setting_of(resource, name)
    return doc.Config(
        resource=str(resource),
        name=name,
        value=value if mask is None else None,
        is_masked=mask is not None,
        mask_reason=None if mask is None else mask.value,
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


def _acls(image: MetadataImage) -> Iterable[doc.Acl]:
    for acl_id, acl in sorted(image.acls.items()):
        yield doc.Acl(
            id=uuid_to_text(acl_id),
            resource_type=acl.resource_type_name,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type_name,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation_name,
            permission=acl.permission_name,
        )


def _delegation_tokens(image: MetadataImage) -> list[doc.DelegationToken]:
    return [
        doc.DelegationToken(
            token_id=token_id,
            owner=token.owner,
            requester=token.requester,
            renewers=token.renewers,
            issue_timestamp_ms=token.issue_timestamp_ms,
            expiration_timestamp_ms=token.expiration_timestamp_ms,
            max_timestamp_ms=token.max_timestamp_ms,
        )
        for token_id, token in sorted(image.delegation_tokens.items())
    ]


# -------------------------------------------------------------------------------------------------------------- cluster history


def history_document(result: HistoryResult) -> doc.ClusterHistory:
    """The chosen part of a history."""
    broker = result.timelines.broker
    return doc.ClusterHistory(
        path=result.path,
        first_offset=result.first_offset,
        last_offset=result.last_offset,
        last_timestamp_ms=result.last_timestamp_ms,
        proven_end_offset=result.proof.end_offset,
        partitions=map(_partition_history, result.timelines.partitions.values()),
        broker=None if broker is None else _broker_history(broker),
        unknown_contents=unknown_contents(result.unknown, result.other_files),
    )


def _partition_history(timeline: PartitionTimeline) -> doc.PartitionHistory:
    return doc.PartitionHistory(
        **named(timeline.topic, timeline.partition),
        topic_id=uuid_to_text(timeline.topic_id),
        entries=[
            doc.PartitionEntry(
                offset=entry.moment.offset,
                timestamp_ms=entry.moment.timestamp_ms,
                leader_epoch=entry.moment.leader_epoch,
                record=entry.moment.record,
                changes=entry.what,
                state=None if entry.state is None else doc.PartitionState(**_state_members(entry.state)),
            )
            for entry in timeline.entries
        ],
    )


def _broker_history(timeline: BrokerTimeline) -> doc.BrokerHistory:
    return doc.BrokerHistory(node_id=timeline.broker_id, entries=[_broker_entry(entry) for entry in timeline.entries])


def _broker_entry(entry: BrokerEntry) -> doc.BrokerEntry:
    return doc.BrokerEntry(
        offset=entry.moment.offset,
        timestamp_ms=entry.moment.timestamp_ms,
        leader_epoch=entry.moment.leader_epoch,
        record=entry.moment.record,
        changes=entry.what,
        state=None if entry.state is None else _broker(entry.state),
        leads=entry.leads,
        in_isr=entry.in_isr,
        in_elr=entry.in_elr,
        replicas=entry.replicas,
    )


# ------------------------------------------------------------------------------------------------------------------------- both


def _broker(broker: BrokerRegistration) -> doc.Broker:
    cordoned = broker.cordoned_directories
    return doc.Broker(
        node_id=broker.id,
        epoch=broker.epoch,
        incarnation_id=uuid_to_text(broker.incarnation_id),
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        directories=[uuid_to_text(each) for each in broker.directories],
        cordoned_directories=None if cordoned is None else [uuid_to_text(each) for each in cordoned],
        rack=broker.rack,
        listeners=[_listener(each) for each in broker.listeners],
        features=_features(broker.features),
    )


def _listener(listener: Any) -> doc.Listener:
    return doc.Listener(name=listener.name, host=listener.host, port=listener.port, security_protocol=listener.security_protocol)


def _features(features: Iterable[Any]) -> dict[str, doc.FeatureLevels]:
    return {each.name: doc.FeatureLevels(min_level=each.min_version, max_level=each.max_version) for each in features}


def _state_members(partition: PartitionRegistration) -> dict[str, Any]:
    """Of ``PartitionState``, as arguments."""
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "leader_recovery_state": partition.leader_recovery_state.name,
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "directories": [directory_text(each) for each in partition.directories],
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "adding": partition.adding,
        "removing": partition.removing,
    }
