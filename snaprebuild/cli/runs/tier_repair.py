"""The work of the verb ``tier repair``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import TierRepairOptions
from snaprebuild.cli.render.tier import TierRepairView
from snaprebuild.cli.runs.remote_storage import (
    announced,
    check_outside_store,
    configured_store,
    key_files,
    opened_ledger,
    running_topic,
    store_access,
)
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.tier.repair import repair

__all__ = ["run_tier_repair"]


def run_tier_repair(store: str | None, options: TierRepairOptions, out: OutputOptions, s3: S3Options) -> View:
    """Writes the right snapshots into remote storage, unless ``dry_run``."""
    out.begin(new_files={"--receipt": options.receipt}, read={"private key": key_files(options), "ledger": options.ledger})
    # The private keys of the broker only if they are named: the verb writes.
    configured = configured_store(store, s3, options, writes=True)
    options = configured.options(options)
    s3 = configured.s3
    check_directories([configured.location, *(options.metadata_log or [])], receipt=options.receipt)
    keys = PrivateKeys.of(options.private_key)
    running = running_topic(options.bootstrap_server, options.command_config, options.metadata_log)
    clock = clock_at(options.as_of, options.expiration_ms)
    access = store_access(configured.location, s3, options, keys, running)
    check_outside_store(access.root, [out.report, options.receipt])
    with opened_ledger(options.ledger, access) as ledger:
        result = repair.tier_repair(
            access,
            run_of(s3, clock=clock, jobs=options.jobs),
            selection=selection_of(options),
            announce=announced,
            allow_unverified=options.allow_unverified,
            undo_path=None if options.dry_run else options.receipt or default_receipt_path(None),
            ledger=ledger,
        )
    return TierRepairView(result, clock)
