"""Files under the name of a snapshot that are no regular files: they are never opened, and so nothing is known about them."""

from __future__ import annotations

import os

from formats.partition.file_names import FileKind
from snaprebuild.findings import Finding, Severity
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["IRREGULAR", "irregular_snapshots"]

IRREGULAR = "is not a regular file: it is not followed, and a broker that must write or read it may fail"


def irregular_snapshots(directory: PartitionDir) -> list[Finding]:
    """A finding for each link, pipe, socket, device or directory with such a name."""
    return [
        Finding("not-a-regular-file", Severity.FINDING, os.path.join(directory.path, name), IRREGULAR)
        for name in directory.unreadable
        if name.endswith(FileKind.PRODUCER_SNAPSHOT.value)
    ]
