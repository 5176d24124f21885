r"""Files of a broker: Java properties (``server.properties``), ``meta.properties`` and ``.kafka_cleanshutdown``.

Source: ``java.util.Properties``, ``MetaProperties``, ``MetaPropertiesVersion``, ``PropertiesUtils``,
``CleanShutdownFileHandler``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from io import StringIO

import msgspec

from formats import limits
from formats.errors import BadValueError, BadVersionError, FormatError, LimitExceededError
from formats.partition.partition_metadata import uuid_from_text
from formats.text_lines import INT32, java_integer, java_lines, shown, shown_number

__all__ = [
    "CleanShutdown",
    "MetaProperties",
    "Properties",
    "Property",
    "read_clean_shutdown",
    "read_meta_properties",
    "read_properties",
]

CLEAN_SHUTDOWN_BYTES_MAX = 1 << 16
"""The file holds two numbers; keys that newer versions add are ignored. What is larger was not written by a broker."""

_BLANK = " \t\f"
_COMMENT = ("#", "!")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")

# A key ends at the first blank, "=" or ":" without a backslash before it. Possessive: otherwise each escape holds 64 bytes.
_KEY = re.compile(r"[^\\ \t\f=:]*+(?:\\.[^\\ \t\f=:]*+)*+", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class Property(msgspec.Struct, frozen=True):
    """A key and its value, escapes resolved, with the line number (from 1) of the key."""

    key: str
    value: str
    line: int


class Properties(msgspec.Struct, frozen=True):
    """A Java properties file.

    Attributes:
        entries: the properties in file order; a key may occur twice, the last one counts.
        comments: the comment lines in file order, from their ``#`` or ``!`` on.
    """

    entries: tuple[Property, ...]
    comments: tuple[str, ...] = ()

    def find(self, key: str) -> Property | None:
        """The property that counts for this key, or None."""
        return next((entry for entry in reversed(self.entries) if entry.key == key), None)

    def get(self, key: str) -> str | None:
        """The value that counts for this key, or None."""
        entry = self.find(key)
        return None if entry is None else entry.value

    @property
    def has_kraft_roles(self) -> bool:
        """Whether ``process.roles`` of a ``server.properties`` names a role: the node is one of a KRaft cluster."""
        return bool((self.get("process.roles") or "").strip())


def read_properties(data: bytes | memoryview, *, file: str | None = None) -> Properties:
    r"""Reads a properties file as ``Properties.load(InputStream)`` does.

    Comments, blank lines, continuation lines, the separators ``=``, ``:`` and blank, latin-1 text with ``\uXXXX``.

    Raises:
        BadValueError: a malformed ``\u`` escape; positions are lines, from 1.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    if len(data) > limits.PROPERTIES_BYTES_MAX:
        raise LimitExceededError("properties", file=file, expected=f"at most {limits.PROPERTIES_BYTES_MAX} bytes", found=len(data))
    entries: list[Property] = []
    comments: list[str] = []
    most = limits.PROPERTIES_LINES_MAX
    for number, line, is_comment in _logical_lines(java_lines(data, "properties", file=file, encoding="latin-1")):
        if len(entries) + len(comments) == most:
            raise LimitExceededError("properties", file=file, expected=f"at most {most} properties and comments", found="more")
        if is_comment:
            comments.append(line)
            continue
        try:
            entries.append(_property(line, number))
        except BadValueError as error:
            error.position = number
            error.unit = "line"
            raise error.in_file(file) from None
    return Properties(tuple(entries), tuple(comments))


def _logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """``Properties.LineReader`` (JDK 17): line number, logical line, whether it is a comment. Blank lines are left out."""
    natural = iter(enumerate(lines, start=1))
    for number, line in natural:
        text = line.lstrip(_BLANK)
        parts: list[str] = []
        empty = True
        at_end = False
        while not (empty and text[:1] in _COMMENT) and _ends_open(text):
            parts.append(text[:-1])
            empty = empty and len(text) == 1
            _, following = next(natural, (0, None))
            at_end = following is None
            text = (following or "").lstrip(_BLANK)
        if empty and text[:1] in _COMMENT:
            # Only where nothing precedes it; and a backslash does not continue a comment.
            yield number, text, True
        elif text or not empty or at_end:
            parts.append(text)
            yield number, "".join(parts), False


def _ends_open(text: str) -> bool:
    """Whether an odd number of backslashes ends the line, so that it continues on the next."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _property(line: str, number: int) -> Property:
    key = _KEY.match(line)
    assert key is not None  # the pattern matches the empty string
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None
    return Property(_unescaped(key[0]), _unescaped(line[separator.end() :]), number)


def _unescaped(text: str) -> str:
    """``Properties.loadConvert``."""
    if "\\" not in text:
        return text
    # No list: each of its parts would take ten times the bytes of an escape.
    plain = StringIO(newline="")
    position = 0
    while (at := text.find("\\", position)) >= 0 and at + 1 < len(text):
        plain.write(text[position:at])
        code = text[at + 1]
        position = at + 2
        if code == "u":
            digits = text[position : position + 4]
            if _UNICODE.fullmatch(digits) is None:
                raise BadValueError("properties escape", expected="\\u and four hexadecimal digits", found=shown(digits))
            plain.write(chr(int(digits, 16)))
            position += 4
        else:
            plain.write(_ESCAPED.get(code, code))
    plain.write(text[position:])
    return plain.getvalue()


class MetaProperties(msgspec.Struct, frozen=True):
    """``meta.properties`` of a log directory: the node and cluster that the directory belongs to.

    Attributes:
        version: 0 (ZooKeeper, and KRaft clusters that came from there), 1 (KRaft), 2 (KRaft without a required cluster id).
        node_id: int32, ``broker.id`` of version 0, ``node.id`` of the others; None only in version 0.
        cluster_id: text; required in version 1.
        directory_id: 16 bytes (KIP-858), or None; required in version 2.
        comments: the comment lines, with their ``#``: an empty one and the date when a broker wrote the file.
        ignored_node_id: the text of ``node.id`` in version 0, where Kafka does not read it. No broker of a ZooKeeper cluster writes it.
    """

    version: int
    node_id: int | None
    cluster_id: str | None
    directory_id: bytes | None = None
    comments: tuple[str, ...] = ()
    ignored_node_id: str | None = None

    def names_node_of(self, other: MetaProperties) -> bool:
        """Whether two log directories belong to one node: the same id in the same cluster."""
        return (self.cluster_id, self.node_id) == (other.cluster_id, other.node_id)

    @property
    def is_kraft(self) -> bool:
        """Whether it was written in a KRaft cluster; False does not prove ZooKeeper: a version 0 without ids shows neither."""
        return self.version > 0 or self.ignored_node_id is not None


META_PROPERTIES_VERSION_MAX = 2


def read_meta_properties(data: bytes | memoryview, *, file: str | None = None) -> MetaProperties:
    """Reads ``meta.properties``; an absent version means 0, unknown keys are ignored (``MetaProperties.Builder``).

    Raises:
        BadVersionError: a version other than 0, 1, 2.
        BadValueError: a required property is absent, or a value malformed; positions are lines, from 1.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    most = limits.META_PROPERTIES_BYTES_MAX
    if len(data) > most:
        raise LimitExceededError("meta.properties", file=file, expected=f"at most {most} bytes", found=len(data))
    try:
        return _meta_properties(read_properties(data, file=file))
    except FormatError as error:
        raise error.in_file(file) from None


def _meta_properties(properties: Properties) -> MetaProperties:
    version = _version(properties)
    directory_id = None
    directory = properties.find("directory.id")
    if directory is not None:
        try:
            directory_id = uuid_from_text(directory.value)
        except BadValueError as error:
            raise _refused(directory, error.expected) from None
    meta = MetaProperties(
        version,
        _node_id(properties, "broker.id" if version == 0 else "node.id"),
        properties.get("cluster.id"),
        directory_id,
        properties.comments,
        properties.get("node.id") if version == 0 else None,
    )
    _check_required(meta)
    return meta


def _version(properties: Properties) -> int:
    entry = properties.find("version")
    if entry is None:
        return 0
    version = java_integer(entry.value.strip(), INT32)
    if version is None or not 0 <= version <= META_PROPERTIES_VERSION_MAX:
        raise BadVersionError(
            "meta.properties version",
            position=entry.line,
            expected=f"0..{META_PROPERTIES_VERSION_MAX}",
            found=shown_number(entry.value),
            unit="line",
        )
    return version


def _node_id(properties: Properties, key: str) -> int | None:
    entry = properties.find(key)
    if entry is None:
        return None
    node_id = java_integer(entry.value, INT32)
    if node_id is None:
        raise _refused(entry, "an int32")
    return node_id


def _refused(entry: Property, expected: object) -> BadValueError:
    return BadValueError(entry.key, position=entry.line, expected=expected, found=shown_number(entry.value), unit="line")


def _check_required(meta: MetaProperties) -> None:
    """The keys that each version must have (``MetaProperties.Builder.build``)."""
    if meta.version > 0 and meta.node_id is None:
        raise BadValueError("node.id", expected=f"an int32 in version {meta.version}", found="nothing")
    if meta.version == 1 and meta.cluster_id is None:
        raise BadValueError("cluster.id", expected="a cluster id in version 1", found="nothing")
    if meta.version == 2 and meta.directory_id is None:
        raise BadValueError("directory.id", expected="a directory id in version 2", found="nothing")


class CleanShutdown(msgspec.Struct, frozen=True):
    """``.kafka_cleanshutdown``: if the file exists, the broker stopped cleanly.

    Attributes:
        broker_epoch: int64, or None if the file does not contain it (older brokers leave the file empty).
    """

    broker_epoch: int | None = None


def read_clean_shutdown(data: bytes | memoryview) -> CleanShutdown:
    """Reads ``.kafka_cleanshutdown``. Never raises: to Kafka a file that it cannot read is a clean stop of unknown epoch."""
    if len(data) > CLEAN_SHUTDOWN_BYTES_MAX:
        return CleanShutdown()
    try:
        content = json.loads(bytes(data).decode("utf-8"))
    except (ValueError, RecursionError):
        return CleanShutdown()
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not limits.INT64_MIN <= epoch <= limits.INT64_MAX:
        return CleanShutdown()
    return CleanShutdown(epoch)
