"""The work of the verb ``tier repair``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import AUDIT_RESULT, check_directories, check_file
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
from snaprebuild.documents.saved_audits import saved_audit
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.receipts.receipt import default_receipt_path
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.tier.repair import repair
from snaprebuild.tier.repair.earlier_audit import EarlierAudit

__all__ = ["run_tier_repair"]


def run_tier_repair(store: str | None, options: TierRepairOptions, out: OutputOptions, s3: S3Options) -> View:
    """Writes the right snapshots into remote storage, unless ``dry_run``."""
    read = {"private key": key_files(options), "ledger": options.ledger, "audit": options.audit}
    out.begin(new_files={"--receipt": options.receipt}, read=read)
    # The private keys of the broker only if they are named: the verb writes.
    configured = configured_store(store, s3, options, writes=True)
    options = configured.options(options)
    s3 = configured.s3
    check_directories([configured.location, *(options.metadata_log or [])], receipt=options.receipt)
    keys = PrivateKeys.of(options.private_key)
    running = running_topic(options.bootstrap_server, options.command_config, options.metadata_log)
    earlier = _earlier_audit(options)
    clock = clock_at(options.as_of, options.expiration_ms) if earlier is None else earlier.clock
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
            earlier=earlier,
        )
    return TierRepairView(result, clock)


def _earlier_audit(options: TierRepairOptions) -> EarlierAudit | None:
    """The document of an audit that takes the place of one; None without it.

    Raises:
        UsageError: it is none that can be used, or options do not go together.
        ReadFailedError: it cannot be read.
    """
    if options.audit is None:
        return None
    if options.ledger is not None:
        raise UsageError("--audit and --ledger exclude each other")
    if options.as_of is not None or options.expiration_ms is not None:
        raise UsageError("--as-of and --expiration-ms go without --audit: producers expire as in that audit")
    check_file(options.audit, AUDIT_RESULT)
    return saved_audit(options.audit)
