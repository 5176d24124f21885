"""The work of the verb ``verify`` with a receipt."""

from __future__ import annotations

import os

from snaprebuild.cli.file_kinds import VERIFIED_RECEIPT, check_file
from snaprebuild.cli.render.receipts import ReceiptView
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
from snaprebuild.snapshots.receipts.verify_receipt import verify_receipt

__all__ = ["run_verify_receipt"]


def run_verify_receipt(receipt: str, *, out: OutputOptions) -> View:
    """Finds the present state of the files in a receipt."""
    out.begin(read={"receipt": receipt})
    if not os.path.isdir(receipt):  # with the parts of a receipt
        check_file(receipt, VERIFIED_RECEIPT)
    return ReceiptView(verify_receipt(load_receipt(receipt)), details=out.everything)
