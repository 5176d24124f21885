"""Saved documents of ``scan``, as ``fleet`` merges them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from snaprebuild.documents.saved_documents import read_head, typed_members
from snaprebuild.documents.scan import Scan
from snaprebuild.errors import UsageError

__all__ = ["SCANS_MAX", "SavedScan", "saved_scans"]

SCANS_MAX = 500

MEMBERS = ("unread_paths", "request", "run", "log_dirs", "partitions", "findings")

OPTIONAL_MEMBERS = ("fates", "settings", "counts")
"""Members that documents of earlier versions lack."""


@dataclass(frozen=True, slots=True)
class SavedScan:
    """A document of ``scan``.

    Attributes:
        path: of the file.
    """

    path: str

    def members(self) -> Iterator[tuple[str, Any]]:
        """The members that a merge needs, by name; lists element by element, so that a large document is never in memory as a whole.

        Raises:
            UsageError: the document is damaged, or lacks one.
            ReadFailedError: it cannot be read.
        """
        return typed_members(self.path, Scan, MEMBERS, optional=OPTIONAL_MEMBERS)


def saved_scans(paths: Sequence[str]) -> list[SavedScan]:
    """The documents at some paths.

    Raises:
        UsageError: there is no document, or too many, or one is named twice. A document is no scan, or of another version.
        ReadFailedError: one cannot be read.
    """
    if not paths:
        raise UsageError("name at least one document of scan; `scan PATH --save-json FILE` writes one")
    if len(paths) > SCANS_MAX:
        raise UsageError(f"expected at most {SCANS_MAX} documents, found {len(paths)}")
    real_paths: set[str] = set()
    for path in paths:
        real_path = os.path.realpath(path)
        if real_path in real_paths:
            raise UsageError("is named twice", path=path)
        real_paths.add(real_path)
        read_head(path, {Scan.NAME: Scan.VERSION}, older="scan again with this version")
    return [SavedScan(path) for path in paths]
