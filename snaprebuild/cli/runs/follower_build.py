"""The work of the verb ``follower build``."""

from __future__ import annotations

import os

from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options, quoted
from snaprebuild.cli.options.followers import FollowerBuildOptions
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.remote_storage import RemoteLevel
from snaprebuild.cli.render.followers import FollowerBuildView
from snaprebuild.cli.runs.remote_storage import announced, check_order, configured_store, key_files, open_tier
from snaprebuild.cli.runs.run_settings import clock_at, run_facts, run_of
from snaprebuild.cli.runs.sources import partition_named, selection_of, topic_ids_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import OF_ONE_LOG, local_start_concerns
from snaprebuild.errors import UsageError
from snaprebuild.findings import first_of
from snaprebuild.followers import build
from snaprebuild.snapshots.receipts.directory_receipt import FOLLOWER_FORM, DirectoryReceipt
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.store import absolute, is_object
from snaprebuild.tier.remote_store import Tier

__all__ = ["run_follower_build"]


def run_follower_build(
    store: str, directory: str, options: FollowerBuildOptions, log_start: int | None, out: OutputOptions, s3: S3Options
) -> View:
    """Builds the directory of an empty follower, unless ``dry_run``."""
    out.begin(new_files={"--receipt": options.receipt}, read={"private key": key_files(options)})
    configured = configured_store(store, s3, options, writes=True)
    options = configured.options(options)
    s3 = configured.s3
    check_metadata(options.metadata)
    receipt = DirectoryReceipt(options.receipt or default_receipt_path(None), FOLLOWER_FORM)
    receipt.check_place()
    check_directories([directory] if directory else [], server_properties=options.server_properties)
    if not directory or is_object(directory):
        raise UsageError("DIR is a directory of this machine, where a broker finds it", path=directory or None)
    selection = selection_of(options)
    topic_ids = topic_ids_of(options.topic_id)
    properties = run_facts().properties_if_given(options.server_properties)
    log_dirs = () if properties is None else log_dirs_of(properties)
    log_dir = absolute(directory)
    run = run_of(s3, clock=clock_at(options.as_of, options.expiration_ms), jobs=options.jobs)
    named = _only_name(selection)
    if named is not None:
        build.check_log_dir(log_dir, named, log_dirs)  # before anything is asked of the store
    check_order(store)
    tier = open_tier(store, s3, options)
    name = named or _only_partition(tier, selection)
    build.check_log_dir(log_dir, name, log_dirs)
    topic, partition = partition_named(name)
    request = build.BuildRequest(topic, partition, _topic_id(topic_ids, topic), options.target, log_start)
    plan = build.plan_build(tier, request, run, replays=options.proof is RemoteLevel.FULL, announce=announced)
    verdict = None
    findings = [*tier.metadata_findings]
    concerns = []
    if os.path.isdir(log_dir):
        # Before the build, which adds a partition. What the start does to the other partitions is not its question.
        concerns = local_start_concerns([log_dir], run, options.server_properties, without=OF_ONE_LOG)
        location = None if options.metadata is None else absolute(options.metadata)
        verdict, evidence_findings = build.judge_target(
            plan, log_dir, properties, location, run, accept_own_log=options.accept_own_log, clock=run.clock
        )
        findings += evidence_findings
    if options.dry_run:
        build.check_build(plan, log_dir, log_dirs=log_dirs, allow_unproven=options.allow_unproven)
    else:
        build.build_follower(plan, log_dir, receipt=receipt, log_dirs=log_dirs, allow_unproven=options.allow_unproven)
    findings += [*build.build_findings(plan, log_dir), *concerns]
    return FollowerBuildView(plan, tier, verdict, findings, log_dir=log_dir, receipt=None if options.dry_run else receipt.path)


def _only_name(selection: Selection) -> str | None:
    """The partition that a selection names as its only one; None if only a listing shows whether it takes one."""
    if len(selection.topic_partitions) != 1 or selection.topics or selection.partitions:
        return None
    (name,) = selection.topic_partitions
    return name


def _only_partition(tier: Tier, selection: Selection) -> str:
    """The name of the only partition in remote storage that a selection takes.

    Raises:
        UsageError: it takes none, or several.
    """
    names = sorted(tier.partition_names)
    taken = [name for name in names if selection.takes_partition(*partition_named(name))]
    if selection.absent(names):
        raise UsageError(selection.why_absent(names), path=tier.base.path)
    if len(taken) == 1:
        return taken[0]
    found = "none is selected"
    if names:
        found += f"; there are {first_of(names, 5)}"
    if taken:
        found = f"{len(taken)} are selected: {first_of(taken, 5)}"
    raise UsageError(f"a follower is built for one partition, and {found}. Name it with --topic-partition", path=tier.base.path)


def _topic_id(ids: dict[str, str], topic: str) -> bytes | None:
    """The id of ``--topic-id``, 16 bytes; None without one.

    Raises:
        UsageError: one is of another topic.
    """
    for other in ids:
        if other != topic:
            raise UsageError(f"--topic-id: the selected partition is one of {topic}, not of {quoted(other)}")
    return uuid_from_text(ids[topic]) if topic in ids else None
