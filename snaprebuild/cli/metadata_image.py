"""The verb ``metadata image``."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from snaprebuild.cli.options import (
    INT32_MAX,
    INT64_MAX,
    OutputFormat,
    OutputOption,
    Report,
    S3Options,
    Topic,
    Verbose,
    quoted,
    takes_s3,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from snaprebuild.cluster.metadata_image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
    from snaprebuild.operations.metadata.image_result import ImageResult
    from snaprebuild.operations.metadata.proof import Proof

__all__ = [
    "MetadataPath",
    "VoterIds",
    "VoterLogs",
    "broker_json",
    "ids_text",
    "metadata_image",
    "partition_json",
    "voter_ids_of",
    "voter_log_of",
]


class At(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """An offset, or the word for the last one that is proven."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; a usage error where it is neither."""
        text = str(value)
        if text != "proven" and not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= INT64_MAX):
            self.fail(f"expected an offset or 'proven', found {quoted(text)}", param, ctx)
        return text


MetadataPath = Annotated[
    str,
    typer.Argument(metavar="DIR", hidden=True),
]


VoterLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--voter",
        metavar="[ID=]DIR",
        help="Metadata log of another voter, to prove what a majority holds; repeatable. Whose it is says meta.properties beside "
        "it, or ID. Default: none.",
    ),
]
VoterIds = Annotated[
    str | None,
    typer.Option(
        "--voters",
        metavar="IDS",
        help="Ids of all voters, with commas. Default: as the records say, else quorum-state. Risk: with too few of them too much "
        "counts as proven.",
    ),
]


@takes_s3
def metadata_image(
    s3: S3Options,
    path: MetadataPath,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="OFFSET",
            click_type=At(),
            help="Last offset to take, or 'proven' for the last one that is proven to be committed. Default: all of the log.",
        ),
    ] = None,
    voter: VoterLogs = None,
    voters: VoterIds = None,
    topic: Topic = None,
    output: OutputOption = OutputFormat.TABLE,
    report: Report = None,
    verbose: Verbose = 0,
) -> None:
    """Reads only: what a metadata log says of the cluster, and how much of that is proven to be committed.

    DIR is __cluster_metadata-0, a copy of it under any name, or a directory above that holds one, also as s3://BUCKET/PREFIX. The
    image is the newest whole checkpoint and the log behind it: brokers, controllers, topics with their partitions, features and
    configurations. Values of configurations that are secrets are masked. The end of one log need not be committed: a checkpoint
    proves what it holds, and logs of a majority of the voters (--voter) what they share.
    """
    from snaprebuild.cli.options import check_paths
    from snaprebuild.cli.result import begin, leave, verdict_document
    from snaprebuild.operations.metadata.image_result import PROVEN, ImageQuestion
    from snaprebuild.operations.metadata.image_result import metadata_image as look

    begin(verbose, {"--report": report})
    others = tuple(voter_log_of(each) for each in voter or ())
    check_paths([path, *(each for _, each in others)])
    question = ImageQuestion(path, at if at in (None, PROVEN) else int(at or 0), others, voter_ids_of(voters), s3.settings())
    result = look(question)
    shown_topics = _selected(result.image, topic)
    leave(
        lambda: verdict_document("metadata-image", 1, _body(result, shown_topics), result.findings),
        result.findings,
        as_json=output is OutputFormat.JSON,
        show=lambda: _print(result, shown_topics),
        report=report,
        everything=verbose > 0,
    )


def voter_ids_of(text: str | None) -> tuple[int, ...] | None:
    """Ids with commas between them.

    Raises:
        UsageError: they are none.
    """
    from snaprebuild.errors import UsageError

    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", text) or any(int(each) > INT32_MAX for each in text.split(",")):
        raise UsageError(f"--voters: expected ids with commas between them, found {quoted(text)}")
    return tuple(int(each) for each in text.split(","))


def voter_log_of(text: str) -> tuple[int | None, str]:
    """Id and location of ``[ID=]DIR``.

    Raises:
        UsageError: the id is no int32.
    """
    from snaprebuild.errors import UsageError

    match = re.fullmatch(r"([0-9]{1,10})=(.*)", text, re.DOTALL)
    if match is None:
        return None, text
    if int(match[1]) > INT32_MAX:
        raise UsageError(f"--voter: expected [ID=]DIR with an id up to {INT32_MAX}, found {quoted(text)}")
    return int(match[1]), match[2]


def _selected(image: MetadataImage, patterns: list[str] | None) -> list[TopicImage]:
    topics = sorted(image.topics.values(), key=lambda each: (each.name, each.topic_id))
    return [each for each in topics if not patterns or any(fnmatch.fnmatchcase(each.name, pattern) for pattern in patterns)]


# ------------------------------------------------------------------------------------------------------------------------ JSON


def _body(result: ImageResult, topics: list[TopicImage]) -> dict[str, object]:
    from formats.partition_metadata import uuid_to_text
    from snaprebuild.cluster.metadata_secrets import is_secret

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
            {
                "resource": str(resource),
                "name": name,
                "value": None if is_secret(name) else value,
                "masked": is_secret(name),
            }
            for resource, values in sorted(image.configs.items())
            for name, value in sorted(values.items())
        ],
        "client_quotas": [
            {"entity": [{"type": kind, "name": name} for kind, name in entity], "quotas": dict(sorted(values.items()))}
            for entity, values in sorted(
                image.client_quotas.items(), key=lambda each: [(kind, name or "") for kind, name in each[0]]
            )
        ],
        "acl_count": len(image.acls),
        "scram_credential_count": len(image.scram_iterations),
        "delegation_token_count": len(image.delegation_tokens),
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
    from formats.partition_metadata import uuid_to_text

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
    from snaprebuild.cluster.metadata_image import directory_text

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


# ---------------------------------------------------------------------------------------------------------------------- tables


def ids_text(ids: Iterable[int]) -> str:
    """Broker ids with commas, or a dash."""
    return ",".join(map(str, ids)) or "-"


def _print(result: ImageResult, topics: list[TopicImage]) -> None:
    from snaprebuild.cli.result import print_table, print_text, shown, time_text
    from snaprebuild.cluster.metadata_image import ResourceType, directory_text
    from snaprebuild.cluster.metadata_secrets import is_secret
    from snaprebuild.operations.findings import counted
    from snaprebuild.operations.metadata.proof import unproven_reason

    image, proof = result.image, result.proof
    rows: list[tuple[object, ...]] = [
        (each.id, each.epoch, _state(each), ids_of(each.directories), each.rack or "-", _address(each))
        for _, each in sorted(image.brokers.items())
    ]
    if rows:
        print_table("Brokers", ("broker", "epoch", "state", "directories", "rack", "listeners"), rows, right=("broker", "epoch"))
    rows = [(each.id, directory_text(each.incarnation_id), _address(each)) for _, each in sorted(image.controllers.items())]
    if rows:
        print_table("Controllers", ("controller", "incarnation", "listeners"), rows, right=("controller",))
    rows = [
        (f"{topic.name}-{number}", *_partition_row(each)) for topic in topics for number, each in sorted(topic.partitions.items())
    ]
    columns = ("partition", "leader", "leader epoch", "partition epoch", "replicas", "ISR", "ELR", "remarks")
    if rows:
        print_table("Partitions", columns, rows, right=("leader", "leader epoch", "partition epoch"))
    rows = [
        (str(resource), name, "(secret)" if is_secret(name) else value)
        for resource, values in sorted(image.configs.items())
        if resource.type != ResourceType.TOPIC or resource.name in {each.name for each in topics}
        for name, value in sorted(values.items())
    ]
    if rows:
        print_table("Configurations", ("of", "name", "value"), rows)
    if image.features:
        print_table("Features", ("feature", "level"), sorted(image.features.items()), right=("level",))
    checkpoint = result.checkpoint
    origin = "the beginning of the log" if checkpoint is None else f"the checkpoint of everything below {checkpoint.end_offset}"
    ids = "none given out" if image.next_producer_id < 0 else f"all below {image.next_producer_id}"
    of_time = "" if image.timestamp_ms < 0 else f", {time_text(image.timestamp_ms)}"
    print_text(f"{shown(result.path)}: up to offset {image.offset}, leader epoch {image.epoch}{of_time}, from {origin}")
    print_text(
        f"{counted(len(image.brokers), 'broker')}, {counted(len(topics), 'topic')}, "
        f"{counted(sum(len(each.partitions) for each in topics), 'partition')}; producer ids: {ids}"
    )
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
        what = f"changes {_some(changed)}" if changed else "changes no broker and no partition"
        print_text(f"{proven}; what comes behind {what}. {unproven_reason(proof)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def ids_of(directories: Iterable[bytes]) -> str:
    """Directory ids with commas, or a dash."""
    from snaprebuild.cluster.metadata_image import directory_text

    return ",".join(map(directory_text, directories)) or "-"


def _state(broker: BrokerRegistration) -> str:
    states = [*(["fenced"] if broker.fenced else []), *(["shutting down"] if broker.in_controlled_shutdown else [])]
    return ", ".join(states) or "active"


def _address(node: Any) -> str:
    return ",".join(f"{each.name}://{each.host}:{each.port}" for each in node.listeners) or "-"


def _partition_row(partition: PartitionRegistration) -> tuple[object, ...]:
    from snaprebuild.cluster.metadata_image import LOST_DIRECTORY, LeaderRecoveryState

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
