"""Contents of a metadata log that this version does not know: of a newer release of Kafka, or of another program.

It is no fault of the log, and mostly no matter for the answer: it is counted and named, so that no answer claims to cover it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.message import UNKNOWN_TAGGED_FIELDS
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.metadata.framed_message import frame_of
from snaprebuild.cluster.metadata.image_model import ConfigResource, Mask, mask_of
from snaprebuild.findings import Finding, Severity, first_of, pluralize
from snaprebuild.published import Natural, Part

__all__ = ["UnknownContents", "UnknownContentsCounter", "UnknownRecordType", "UnknownTaggedField", "unknown_findings"]

NAMES_MAX = 10
"""Names in a sentence."""


FILES_MAX = 100
"""Names of files in a document; the rest is counted."""


class UnknownTaggedField(Part, frozen=True):
    """A tagged field that this version does not know."""

    message: str
    """Name of the record or of the structure in it."""
    tag: Natural


class UnknownRecordType(Part, frozen=True):
    """Records of a type, or of a version of it, that this version does not know."""

    api_key: Natural
    version: Natural


class UnknownContents(Part, frozen=True):
    """Contents of a metadata log that this version of snaprebuild does not know. The result does not cover them."""

    count: Natural
    """Number of unknown things of all kinds."""
    tagged_fields: tuple[UnknownTaggedField, ...]
    record_types: tuple[UnknownRecordType, ...]
    setting_names: tuple[str, ...]
    """Names of configurations; their values are not shown."""
    files: tuple[str, ...]
    """Names of files in the directory of the log, at most 100."""


@dataclass(slots=True)
class UnknownContentsCounter:
    """Collects what is unknown while a log is read: each kind of thing once, however often it is read.

    Attributes:
        tagged_fields: name of the message and tag.
        record_types: api key and version of records that cannot be read.
        settings: names of configurations; their values are not kept.
    """

    tagged_fields: set[tuple[str, int]] = field(default_factory=set)
    record_types: set[tuple[int, int]] = field(default_factory=set)
    settings: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.tagged_fields or self.record_types or self.settings)

    def add_record(self, record: ClusterMetadataRecord) -> None:
        """A record that was read."""
        message = record.message
        if record.api_key == MetadataRecordType.CONFIG:
            resource = ConfigResource(message["resourceType"], message["resourceName"])
            if mask_of(resource, message["name"]) is Mask.UNKNOWN_NAME:
                self.settings.add(message["name"])
        self._add_tags(record.name, message)

    def add_unread(self, value: bytes | None) -> None:
        """A record that cannot be read, if its frame can be."""
        try:
            frame_version, api_key, version, _ = frame_of(value or b"")
        except FormatError:
            return
        if frame_version == 1:
            self.record_types.add((api_key, version))

    def contents(self, files: Sequence[str]) -> UnknownContents | None:
        """The unknown contents for a document; None for nothing.

        Args:
            files: names of unknown files in the directory of the log.
        """
        count = len(self.tagged_fields) + len(self.record_types) + len(self.settings) + len(files)
        if not count:
            return None
        return UnknownContents(
            count=count,
            tagged_fields=tuple(UnknownTaggedField(name, tag) for name, tag in sorted(self.tagged_fields)),
            record_types=tuple(UnknownRecordType(key, version) for key, version in sorted(self.record_types)),
            setting_names=tuple(sorted(self.settings)),
            files=tuple(sorted(files)[:FILES_MAX]),
        )

    def _add_tags(self, name: str, message: dict[str, object]) -> None:
        for each in message.get(UNKNOWN_TAGGED_FIELDS, ()):  # type: ignore[attr-defined]
            self.tagged_fields.add((name, each[0]))
        for value in message.values():
            if isinstance(value, dict):
                self._add_tags(name, value)
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                for one in value:
                    self._add_tags(name, one)

    @property
    def text(self) -> str:
        """Count and names of each kind: ``2 tagged fields (100, 102) and 1 setting (a.b)``."""
        parts = []
        tags = sorted({tag for _, tag in self.tagged_fields})
        if tags:
            parts.append(f"{pluralize(len(tags), 'tagged field')} ({_names(map(str, tags))})")
        if self.record_types:
            types = (f"{api_key} version {version}" for api_key, version in sorted(self.record_types))
            parts.append(f"{pluralize(len(self.record_types), 'record type')} ({_names(types)})")
        if self.settings:
            parts.append(f"{pluralize(len(self.settings), 'setting')} ({_names(sorted(self.settings))})")
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

    @property
    def sentence(self) -> str:
        """The text, and who does not know it, without a full stop."""
        return f"{self.text} that this version of snaprebuild does not know"


def _names(names: Iterable[str]) -> str:
    return first_of(list(names), NAMES_MAX)


def unknown_findings(path: str, unknown: UnknownContentsCounter) -> list[Finding]:
    """A note, if there is anything.

    Args:
        path: of the log.
        unknown: what was met in it.
    """
    if not unknown:
        return []
    message = f"{unknown.sentence}. The result covers what it knows"
    return [Finding("unknown-metadata", Severity.NOTE, path, message)]
