"""Whether a broker may get the replica that ``follower build`` makes: the rules that need no replica, asked of its log directory."""

from __future__ import annotations

import os

from formats.broker.broker_files import Properties
from snaprebuild.cluster.source.evidence import LogEvidence, Purpose
from snaprebuild.cluster.source.metadata_logs import MetadataLogs
from snaprebuild.cluster.source.verdict import SourceVerdict, judge
from snaprebuild.cluster.source.verifier import SourceVerifier, rejection, unknown_finding
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.followers.bootstrap_build import FollowerPlan
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.storage.log_dir import read_log_dir
from snaprebuild.storage.store import S3Settings

__all__ = ["judge_target"]


def judge_target(
    plan: FollowerPlan, log_dir: str, properties: Properties | None, metadata: str | None, settings: S3Settings
) -> tuple[SourceVerdict, list[Finding]]:
    """The verdict on a replica that is yet to be made, and what could not be asked.

    Args:
        plan: of the follower.
        log_dir: that it is to go to, absolute.
        properties: of the broker, where they are known.
        metadata: location of the cluster's metadata log; None for the broker's own.
        settings: of object stores.

    Raises:
        RefusedError: the broker is not to get it: not of this cluster, none of its replicas, another topic of this name.
        UsageError: what was named is no metadata log.
        RefusedError: it is damaged.
        StorageError: it cannot be read.
    """
    logs = MetadataLogs(metadata, settings)
    logs.named()
    verifier = SourceVerifier(Purpose.BOOTSTRAP, logs)
    state = read_log_dir(os.path.realpath(log_dir))
    log_dirs = () if properties is None else log_dirs_of(properties)
    own = [os.path.realpath(each) for each in log_dirs if os.path.isdir(each)]
    verifier.register([state, *(read_log_dir(each) for each in own if each != state.path)], properties=properties)
    path = os.path.join(log_dir, plan.directory_name)
    log = LogEvidence(path, plan.topic, plan.number, topic_id=plan.topic_id, exists=False)
    verdict = judge(verifier.evidence_for(state, log))
    if verdict.is_rejected:
        raise RefusedError(rejection(verdict, path).message, path=path)
    findings = [*logs.findings, *verifier.findings]
    unknown = unknown_finding(verdict, path, Severity.FINDING, [each.message for each in findings])
    return verdict, findings if unknown is None else [*findings, unknown]
