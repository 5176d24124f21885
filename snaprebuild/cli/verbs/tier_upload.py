"""The verb ``tier upload``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.metadata import QuorumAssumptions
from snaprebuild.cli.options.remote_storage import LogPath, TierLocation, UploadOptions
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["tier_upload"]


@verb()
def tier_upload(
    *,
    store: TierLocation,
    path: LogPath,
    options: UploadOptions,
    assumed: QuorumAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES rolled segments to remote storage, in the layout of Aiven's plugin; no object is replaced.

    STORE is a directory or s3://BUCKET/PREFIX. PATH is a partition directory, a log directory, or any directory above them, below
    which nothing changes.

    If you can, repair the local snapshots (`rebuild`), start the broker, and let it upload. A leader keeps in memory what it
    has uploaded. It may upload the same segments again under other ids, which costs space. This verb is for a stopped broker, a
    topic with remote.log.copy.disable=true, a restore or a migration. No broker knows of the copies before their records are in
    __remote_log_metadata: --produce-to puts them there, --records-file writes them to a file. Exit code 3 if a segment is
    refused, or if no evidence shows that a replica leads or is in sync (with ZooKeeper --i-am-the-leader). A segment
    above the high watermark or the last stable offset waits, and nothing is wrong with it. Exit code 5 if the store or the cluster
    failed: run the same command again. There is no receipt, and no `undo`: a broker may read a copy as soon as it knows of it.
    """
    from snaprebuild.cli.runs.tier_upload import run_tier_upload

    return run_tier_upload(store, path, options, voter_ids=assumed.voters, out=out, s3=s3)
