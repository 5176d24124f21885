"""The lines of a receipt: a header, then steps. ``receipt`` writes them, ``receipt_reader`` reads them (docs/reference/json/rebuild.md).

A run reports events about its files, which a receipt or a stage records. Each announcement comes before its file gets its name.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from formats.partition.file_names import snapshot_file_name
from snaprebuild.errors import SnaprebuildError
from snaprebuild.published import Natural, Part, Positive, RunRecord
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.storage.file_facts import InputFile, check_ascending
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.whole_file import aside_name

__all__ = [
    "FOLLOWER_KIND",
    "KIND",
    "OTHER_VERSION_ADVICE",
    "SCHEMA",
    "STORE_KIND",
    "TOPIC_KIND",
    "VERSION",
    "EndStep",
    "FileStep",
    "JoinedStep",
    "NotWrittenStep",
    "ObjectsStep",
    "PartitionStep",
    "PartsStep",
    "ReceiptHeader",
    "SetAsideAnnounced",
    "SetAsideStep",
    "Step",
    "UndoingStep",
    "UndoneStep",
    "WriteAnnounced",
    "WriteEvent",
    "WriteSettled",
    "WriteStep",
    "WrittenStep",
]

VERSION = 3
KIND = "snaprebuild.receipt/"
SCHEMA = f"{KIND}{VERSION}"
STORE_KIND = "snaprebuild.tier-undo/"
"""Begin of the schema of the receipts of `tier repair`."""

TOPIC_KIND = "snaprebuild.metadata-undo/"
"""Begin of the schema of the receipts of `tier metadata`."""

FOLLOWER_KIND = "snaprebuild.follower-undo/"
"""Begin of the schema of the receipts of `follower build`."""

OTHER_VERSION_ADVICE = "use the version of snaprebuild that wrote it"

Location = Annotated[str, msgspec.Meta(pattern=r"\A(/|s3://)[^\0\ud800-\udc7f\udd00-\udfff]*\Z")]
"""An absolute path, or an object."""


class ReceiptHeader(Part, frozen=True, kw_only=True):
    """The first line.

    Attributes:
        snaprebuild: version of the program.
        began_ms: when the first file was announced.
    """

    schema: str
    snaprebuild: str
    began_ms: Natural
    in_place: bool
    run: RunRecord
    request: dict[str, Any]
    expiration_ms: Positive


class _Numbered(Part, frozen=True, kw_only=True, tag_field="step"):
    """A step. ``number`` is that of a partition, as its line has it."""

    number: Natural


class PartitionStep(_Numbered, frozen=True, kw_only=True, tag="partition"):
    """Before the first file of a partition: how a broker would have found it.

    Attributes:
        source: directory of its segments.
        target: directory of the files, without links.
        without_index: base offsets of segments that had no offset index.
    """

    topic_partition: str
    source: Location
    target: Location
    checkpointed_log_start_offset: Natural
    log_end_offset: Natural | None
    clean_shutdown: bool
    recovery_point: Natural
    is_tiered: bool
    segments: tuple[InputFile, ...]
    without_index: tuple[Natural, ...]
    snapshots: tuple[InputFile, ...]

    def __post_init__(self) -> None:
        check_ascending(each.offset for each in self.segments)
        check_ascending(each.offset for each in self.snapshots)


class _FileStep(Fingerprint, Part, frozen=True, kw_only=True, tag_field="step"):
    """A file. Its name follows from its offset, and only from it."""

    number: Natural
    offset: Natural
    name: str

    def __post_init__(self) -> None:
        if self.name != snapshot_file_name(self.offset):
            raise ValueError(f"expected the name of a snapshot at {self.offset}")


class SetAsideStep(_FileStep, frozen=True, kw_only=True, tag="set_aside"):
    """Before a wrong snapshot is moved to another name."""

    set_aside: str

    def __post_init__(self) -> None:
        _FileStep.__post_init__(self)
        number = re.fullmatch(r".*\.([0-9]{1,9})", self.set_aside, re.DOTALL)
        if number is None or int(number[1]) < 1 or self.set_aside != aside_name(self.offset, int(number[1])):
            raise ValueError(f"expected the name of a snapshot at {self.offset} that is set aside")


class WriteStep(_FileStep, frozen=True, kw_only=True, tag="write"):
    """Before a snapshot that is whole gets its name."""

    snapshot_class: SnapshotClass = msgspec.field(name="class")
    entries: Natural


class WrittenStep(_Numbered, frozen=True, kw_only=True, tag="written"):
    """The file that was announced last at this offset has its name."""

    offset: Natural


class NotWrittenStep(_Numbered, frozen=True, kw_only=True, tag="not_written"):
    """The file that was announced does not have its name."""

    offset: Natural


class EndStep(Part, frozen=True, kw_only=True, tag_field="step", tag="end"):
    """The last line of a run that was not killed."""

    ended_ms: Natural
    written: Natural


class PartsStep(Part, frozen=True, kw_only=True, tag_field="step", tag="parts"):
    """Tasks in other processes announce files from now on, each in a part of the receipt (``part_files``).

    Attributes:
        directory: of the parts.
        run: hexadecimal digits in their names.
    """

    directory: Annotated[str, msgspec.Meta(pattern=r"\A/[^\0\ud800-\udc7f\udd00-\udfff]*\Z")]
    run: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]


class JoinedStep(Part, frozen=True, kw_only=True, tag_field="step", tag="joined"):
    """The lines of all parts are above, and the parts are removed."""


class ObjectsStep(Part, frozen=True, kw_only=True, tag_field="step", tag="objects"):
    """Tasks in other processes make objects from now on. The receipt lists them when their task has ended.

    Attributes:
        run: each object of the run has it in its metadata ``snaprebuild-run``, from its first moment on.
    """

    run: str


class UndoingStep(_Numbered, frozen=True, kw_only=True, tag="undoing"):
    """``undo`` is about to remove these files."""

    offsets: tuple[Natural, ...]


class UndoneStep(_Numbered, frozen=True, kw_only=True, tag="undone"):
    """``undo`` has removed these files. It ends what ``undoing`` began for the partition."""

    offsets: tuple[Natural, ...]


FileStep = PartitionStep | SetAsideStep | WriteStep | WrittenStep | NotWrittenStep | UndoingStep | UndoneStep
"""The steps with the number of a partition."""

Step = FileStep | EndStep | PartsStep | JoinedStep | ObjectsStep


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
