"""The verb ``cluster source``, and the options of verbs that ask for a verdict."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import Jobs, Partition, Paths, S3Options, ServerProperties, Topic, WholeNumber
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.metadata import (
    AcceptOwnLog,
    BrokerEpoch,
    LeaderByWord,
    Metadata,
    Peers,
    QuorumAssumptions,
    VoterLogs,
    check_metadata,
    voter_log_of,
)
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.cluster.source_check.check import CheckedSource, SourceCheck
    from snaprebuild.documents import cluster as doc
    from snaprebuild.findings import Finding
    from snaprebuild.snapshots.run import Run

__all__ = ["cluster_source"]

RULES_TABLES_MAX = 1
"""Replicas whose rules are printed one by one without ``-v``."""


class PurposeName(StrEnum):
    """The same as ``cluster.source_check.evidence.Purpose``, which would import construct for a help text."""

    REBUILD = "rebuild"
    UPLOAD = "upload"
    BOOTSTRAP = "bootstrap"


@verb(Load)
def cluster_source(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    purpose: Annotated[
        PurposeName,
        typer.Option(
            "--purpose",
            show_default=False,
            help="What the replicas are the source of. rebuild: snapshots of their own segments. upload: copies in remote "
            "storage. bootstrap: the log of another replica. Default: rebuild.",
        ),
    ] = PurposeName.REBUILD,
    metadata: Metadata = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--offset",
            metavar="OFFSET",
            click_type=WholeNumber(0, INT64_MAX),
            help="Last offset of the metadata log to use. Default: all of it.",
        ),
    ] = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    peer: Peers = None,
    i_am_the_leader: LeaderByWord = False,
    accept_own_log: AcceptOwnLog = False,
    broker_epoch: BrokerEpoch = None,
    topic: Topic = None,
    partition: Partition = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows whether replicas may be the source of snapshots, of uploads, or of another replica, and which rule decides.

    PATH is a partition directory, a log directory, or any directory above them; several may be named, also as s3://BUCKET/PREFIX.
    The verdict is TRUSTED, TRUSTED_BELOW an offset, UNKNOWN if evidence is missing that should exist, or REJECTED by the first
    rule that fails. Evidence that a cluster cannot have is not missing: before KRaft there is no metadata log. Exit code 1 if a verdict
    is UNKNOWN, or only directories that no broker serves are REJECTED; 3 if any other replica is REJECTED.
    """
    from snaprebuild.cli.options.common import check_paths, selection_of
    from snaprebuild.cluster.source_check.check import SourceQuestion, check_sources
    from snaprebuild.cluster.source_check.evidence import Purpose
    from snaprebuild.storage.store import absolute

    out.begin()
    check_paths([*(paths or ()), *(peer or ())], server_properties=server_properties)
    if not paths and server_properties is None:
        raise UsageError("name at least one path, or the --server-properties of a broker")
    check_metadata(metadata)
    question = SourceQuestion(
        paths=tuple(absolute(path) for path in paths or ()),
        server_properties=None if server_properties is None else os.path.abspath(server_properties),
        purpose=Purpose(purpose.value),
        metadata=None if metadata is None else absolute(metadata),
        at=at,
        peers=tuple(absolute(path) for path in peer or ()),
        leader_asserted=i_am_the_leader,
        own_log_accepted=accept_own_log,
        broker_epoch=broker_epoch,
        selection=selection_of(topic, partition, None),
        voters=tuple(voter_log_of(each) for each in voter or ()),
        voter_ids=assumed.voters,
    )
    run = s3.run(jobs=jobs)
    result = check_sources(question, run)
    findings = [*result.findings, *_of_start(result, run)]
    return Result(lambda: _document(result), findings, lambda: _print(result, everything=out.everything))


def _of_start(result: SourceCheck, run: Run) -> list[Finding]:
    """What the next start does to replicas that are not rejected: the rules judge the replica, and not whether its broker starts."""
    from snaprebuild.cluster.scan_storage import start_concerns
    from snaprebuild.findings import Severity
    from snaprebuild.snapshots.source.source import open_source
    from snaprebuild.storage.store import is_object

    question = result.question
    if not result.replicas or any(map(is_object, question.paths)):
        return []
    source = open_source(question.paths, question.server_properties, question.selection, run)
    replicas = {each.log.path for each in result.replicas}
    named = [each for each in result.findings if each.severity is Severity.REFUSED or each.path not in replicas]
    return start_concerns(source, named)


def _document(result: SourceCheck) -> doc.ClusterSource:
    from snaprebuild.documents import cluster as doc

    question = result.question
    return doc.ClusterSource(
        purpose=question.purpose.value,
        server_properties=question.server_properties,
        metadata=question.metadata,
        requested_offset=question.at,
        voters=[location for _, location in question.voters],
        peers=question.peers,
        broker_epoch=question.broker_epoch,
        i_am_the_leader=question.leader_asserted,
        accept_own_log=question.own_log_accepted,
        replicas=[_replica(each) for each in result.replicas],
    )


def _replica(checked: CheckedSource) -> doc.SourceReplica:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.cli.render.shared_parts import unknown_contents
    from snaprebuild.documents import cluster as doc
    from snaprebuild.storage.partition_names import names_of

    log = checked.log
    meta = checked.state.meta
    metadata = checked.metadata.read
    directory_id = None if meta is None else meta.directory_id
    return doc.SourceReplica(
        **names_of(checked.directory),
        path=log.path,
        node_id=None if meta is None else meta.node_id,
        cluster_id=None if meta is None else meta.cluster_id,
        directory_id=None if directory_id is None else uuid_to_text(directory_id),
        topic_id=None if log.topic_id is None else uuid_to_text(log.topic_id),
        log_end_offset=log.log_end,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable,
        metadata_log=None
        if metadata is None
        else doc.MetadataLogUsed(
            path=metadata.path,
            is_own=metadata.is_own,
            offset=metadata.image.offset,
            proven_below=metadata.proven_below,
            proof=metadata.proof,
            unknown_contents=unknown_contents(metadata.read.log.unknown, metadata.read.log.other_files),
        ),
        metadata_log_missing=checked.metadata.why_none if metadata is None else None,
        verdict=checked.verdict.document(),
        verdict_text=str(checked.verdict),
        rules=[
            doc.SourceRule(
                rule=each.rule.name,
                name=each.rule.value,
                state=each.state_name,
                evidence=each.evidence,
                trusted_below=each.limit,
            )
            for each in checked.verdict.results
        ],
    )


def _print(result: SourceCheck, *, everything: bool) -> None:
    from collections import Counter

    from snaprebuild.cli.result import print_table, print_text, shown
    from snaprebuild.findings import pluralize

    rows = [
        (
            shown(each.log.path),
            each.verdict,
            "-" if each.verdict.rule is None else f"{each.verdict.rule.name} {each.verdict.rule.value}",
            each.verdict.why or "-",
        )
        for each in result.replicas
    ]
    if rows:
        print_table(f"Sources for {_of(result)}", ("replica", "verdict", "rule", "because"), rows, drop=("rule",))
    if everything or len(result.replicas) <= RULES_TABLES_MAX:
        for each in result.replicas:
            _print_rules(each)
    for text in dict.fromkeys(_metadata_text(each) for each in result.replicas):
        print_text(text)
    counts = Counter(each.verdict.outcome.value for each in result.replicas)
    outcome_counts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    print_text(f"{pluralize(len(result.replicas), 'replica')}: {outcome_counts or 'nothing to judge'}")


def _of(result: SourceCheck) -> str:
    return {"rebuild": "a rebuild in place", "upload": "uploads", "bootstrap": "other replicas"}[result.question.purpose.value]


def _print_rules(checked: CheckedSource) -> None:
    from snaprebuild.cli.result import print_table, shown

    rows = [(f"{each.rule.name} {each.rule.value}", each.state_name, each.evidence) for each in checked.verdict.results]
    print_table(f"Rules: {os.path.basename(shown(checked.log.path))}", ("rule", "result", "evidence"), rows, all_rows=True)


def _metadata_text(checked: CheckedSource) -> str:
    from snaprebuild.cli.result import shown

    asked = checked.metadata.read
    if asked is not None:
        unknown = asked.read.log.unknown
        covered = f". Not covered: {unknown.sentence}" if unknown else ""
        return f"metadata log: {shown(asked.path)}: {asked.summary}{covered}"
    word = "; " + "; ".join(checked.verdict.asserted) if checked.verdict.asserted else ""
    return f"metadata log: none for {shown(checked.state.path)}: {checked.metadata.why_none}{word}"
