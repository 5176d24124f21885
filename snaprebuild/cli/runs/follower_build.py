"""The work of the verb ``follower build``."""

from __future__ import annotations

import os
import re

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import ExpiryOptions, S3Options, quoted
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.remote_storage import RemoteLevel, TierOptions
from snaprebuild.cli.render.followers import FollowerBuildView
from snaprebuild.cli.runs.remote_storage import announced, key_files, open_tier
from snaprebuild.cli.runs.run_settings import clock_at, run_facts, run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import OF_ONE_LOG, local_start_concerns
from snaprebuild.errors import UsageError
from snaprebuild.followers import bootstrap_build
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.storage.store import absolute, is_object

__all__ = ["run_follower_build"]


def run_follower_build(
    *,
    store: str,
    directory: str,
    topic_partition: str,
    topic_id: str | None,
    target: int | None,
    log_start: int | None,
    tier_options: TierOptions,
    level: RemoteLevel,
    server_properties: str | None,
    metadata: str | None,
    accept_own_log: bool,
    allow_unproven: bool,
    dry_run: bool,
    expiry: ExpiryOptions,
    jobs: int | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Builds the directory of an empty follower, unless ``dry_run``."""
    out.begin(private_key=key_files(tier_options))
    check_metadata(metadata)
    check_directories([directory] if directory else [], server_properties=server_properties)
    if not directory or is_object(directory):
        raise UsageError("DIR is a directory of this machine, where a broker finds it", path=directory or None)
    topic, partition = _topic_and_partition(topic_partition)
    request = bootstrap_build.BuildRequest(topic, partition, _topic_id(topic_id), target, log_start)
    properties = None if server_properties is None else run_facts().properties(server_properties)
    log_dirs = () if properties is None else log_dirs_of(properties)
    log_dir = absolute(directory)
    run = run_of(s3, clock=clock_at(expiry.as_of, expiry.expiration_ms), jobs=jobs)
    bootstrap_build.check_log_dir(log_dir, topic_partition, log_dirs)  # before anything is asked of the store
    tier = open_tier(store, s3, tier_options)
    plan = bootstrap_build.plan_build(tier, request, run, replays=level is RemoteLevel.FULL, announce=announced)
    verdict = None
    findings = [*tier.metadata_findings]
    concerns = []
    if os.path.isdir(log_dir):
        # Before the build, which adds a partition. What the start does to the other partitions is not its question.
        concerns = local_start_concerns([log_dir], run, server_properties, without=OF_ONE_LOG)
        location = None if metadata is None else absolute(metadata)
        verdict, evidence_findings = bootstrap_build.judge_target(
            plan, log_dir, properties, location, run, accept_own_log=accept_own_log, clock=run.clock
        )
        findings += evidence_findings
    if dry_run:
        bootstrap_build.check_build(plan, log_dir, log_dirs=log_dirs, allow_unproven=allow_unproven)
    else:
        bootstrap_build.build_follower(plan, log_dir, log_dirs=log_dirs, allow_unproven=allow_unproven)
    findings += [*bootstrap_build.build_findings(plan, log_dir), *concerns]
    return FollowerBuildView(plan, tier, verdict, findings, log_dir=log_dir, dry_run=dry_run)


def _topic_and_partition(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"([A-Za-z0-9._-]+)-(0|[1-9][0-9]{0,9})", text)
    if match is None or int(match[2]) >= 2**31:
        raise UsageError(f"--topic-partition: expected TOPIC-N, found {quoted(text)}")
    return match[1], int(match[2])


def _topic_id(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return uuid_from_text(text)
    except FormatError as error:
        raise UsageError(f"--topic-id: {error.message}") from error
