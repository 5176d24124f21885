"""Events about the files of a run, which a receipt or a stage records: each announcement comes before its file gets its name."""

from __future__ import annotations

import msgspec

from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.storage.local.fingerprint import Fingerprint

__all__ = ["SetAsideAnnounced", "WriteAnnounced", "WriteEvent", "WriteSettled"]


class SetAsideAnnounced(msgspec.Struct, frozen=True):
    """The snapshot at ``offset``, which is ``file``, is about to be moved to ``name``."""

    offset: int
    name: str
    file: Fingerprint


class WriteAnnounced(msgspec.Struct, frozen=True):
    """A snapshot is whole and about to get its name."""

    offset: int
    snapshot_class: SnapshotClass
    entries: int
    file: Fingerprint


class WriteSettled(msgspec.Struct, frozen=True):
    """The snapshot that was announced last at ``offset`` has its name, or did not get it because of ``error``."""

    offset: int
    error: SnaprebuildError | None = None


WriteEvent = SetAsideAnnounced | WriteAnnounced | WriteSettled
