"""The work of the verb ``verify`` with a receipt."""

from __future__ import annotations

import os

import click

from snaprebuild.cli.answer import given_words
from snaprebuild.cli.file_kinds import VERIFIED_RECEIPT, check_file
from snaprebuild.cli.render.receipts import ReceiptView
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.shell_words import shell_command
from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
from snaprebuild.snapshots.receipts.verify_receipt import verify_receipt

__all__ = ["run_verify_receipt"]


def run_verify_receipt(receipt: str, *, out: OutputOptions) -> View:
    """Finds the present state of the files in a receipt.

    Raises:
        UsageError: an option of a replay, or of a selection, is given.
    """
    own = ("written_by", *OutputOptions.__struct_fields__)
    if others := given_words(*(name for name in click.get_current_context().params if name not in own)):
        raise UsageError(f"--written-by names the files, and replays nothing: `{shell_command(others)}` does not go with it")
    out.begin(read={"receipt": receipt})
    if not os.path.isdir(receipt):  # with the parts of a receipt
        check_file(receipt, VERIFIED_RECEIPT)
    return ReceiptView(verify_receipt(load_receipt(receipt)), details=out.everything)
