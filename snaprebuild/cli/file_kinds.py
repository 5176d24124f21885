"""The kind of a file that a command line names, and the command that takes it: for one sentence about a file of the wrong kind.

A kind is recognized by the first bytes of a file, and for files of Kafka without a magic number by the name. Nothing else is looked at: a
damaged plan is still a plan, and its reader reports the damage.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from snaprebuild.cli.options.common import check_paths
from snaprebuild.cli.runs.run_settings import run_facts
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.shell_words import shell_word
from snaprebuild.storage.local.regular_file import open_named_file
from snaprebuild.storage.store import is_object
from snaprebuild.typed_paths import ABSENT, absent_text

if TYPE_CHECKING:
    from formats.partition.file_names import DumpedKind

__all__ = [
    "AUDIT_LEDGER",
    "BROKER_PROPERTIES",
    "CLIENT_PROPERTIES",
    "DIRECTORY",
    "DUMPED",
    "ISR_SCENARIO",
    "METADATA_SCENARIO",
    "REPORTED",
    "SAVED_PLAN",
    "SCAN_RESULT",
    "SETTINGS_FILE",
    "SNAPSHOT",
    "STAGED_PLAN",
    "UNDONE_RECEIPT",
    "VERIFIED_RECEIPT",
    "FileContent",
    "FilePurpose",
    "NamedFile",
    "check_directories",
    "check_file",
    "check_kind",
    "recognize",
]

HEAD_BYTES = 1 << 16
"""Read of each file."""


class FileContent(StrEnum):
    """The kind of a file that a command line may name; the value is its noun."""

    SAVED_PLAN = "a saved plan"
    STAGED_PLAN = "a staged plan"
    RECEIPT = "a receipt"
    STORE_RECEIPT = "a receipt of `tier repair`"
    METADATA_RECEIPT = "a receipt of `tier metadata`"
    FOLLOWER_RECEIPT = "a receipt of `follower build`"
    AUDIT_LEDGER = "a ledger of `tier audit`"
    RESULT = "the JSON result of"
    """The name of the command is added."""
    JSON = "JSON of another program"
    PAGE = "an HTML page"
    METRICS = "a file of metrics"
    BROKER_PROPERTIES = "the configuration of a broker"
    CLIENT_PROPERTIES = "the configuration of a Kafka client"
    SETTINGS = "a file of settings"
    METADATA_SCENARIO = "a scenario of `simulate metadata-log`"
    ISR_SCENARIO = "a scenario of `simulate isr`"
    SEGMENT = "a segment"
    SNAPSHOT = "a producer snapshot"
    INDEX = "an index of a segment"
    KRAFT_CHECKPOINT = "a snapshot of the metadata log"
    BROKER_FILE = "a small file of a broker"
    """The name of the file is added."""
    COMPRESSED = "a compressed file"
    EMPTY = "an empty file"
    BINARY = "binary data"


class NamedFile(NamedTuple):
    """A file that was recognized."""

    content: FileContent
    noun: str
    """A noun with its article, which follows "is" in a sentence about the file."""
    advice: str
    """Which command takes it; empty if none does."""
    command: str = ""
    """The command that wrote a JSON result, its words with blanks between them."""


_ADVICE = {
    FileContent.SAVED_PLAN: "`rebuild --plan FILE` takes it",
    FileContent.STAGED_PLAN: "`install --plan FILE` takes it",
    FileContent.RECEIPT: "`undo FILE`, `verify --written-by FILE` and `report FILE` take it",
    FileContent.STORE_RECEIPT: "`undo FILE` takes it",
    FileContent.METADATA_RECEIPT: "`undo FILE` takes it",
    FileContent.FOLLOWER_RECEIPT: "`undo FILE` takes it",
    FileContent.AUDIT_LEDGER: "`tier audit --ledger FILE` and `tier repair --ledger FILE` take it",
    FileContent.JSON: "no command takes it",
    FileContent.PAGE: "open it in a browser",
    FileContent.METRICS: "the node exporter of Prometheus takes it",
    FileContent.BROKER_PROPERTIES: "`--server-properties FILE` takes it",
    FileContent.CLIENT_PROPERTIES: "`tier upload --producer-config FILE` takes it",
    FileContent.SETTINGS: "`--config FILE` takes it",
    FileContent.METADATA_SCENARIO: "`simulate metadata-log FILE` takes it",
    FileContent.ISR_SCENARIO: "`simulate isr --scenario FILE` takes it",
    FileContent.SNAPSHOT: "`inspect explain FILE` and `inspect dump FILE` take it",
    FileContent.COMPRESSED: "unpack it first",
    FileContent.EMPTY: "no command takes it",
    FileContent.BINARY: "no command takes it",
}
_DUMPED = "`inspect dump FILE` takes it"

_RESULT_TAKERS = {
    "scan": "`report FILE` and `fleet FILE` take it",
    "tier audit": "`report FILE` and `tier repair STORE --audit FILE` take it",
    **dict.fromkeys(("fleet", "verify", "inspect transactions"), "`report FILE` takes it"),
}

_SCHEMA = re.compile(rb'\s*\{\s*"schema"\s*:\s*"snaprebuild\.([a-z-]{1,40})/[0-9]{1,4}"')
_OF_SCHEMA = {
    "saved-plan": FileContent.SAVED_PLAN,
    "staged-plan": FileContent.STAGED_PLAN,
    "receipt": FileContent.RECEIPT,
    "tier-undo": FileContent.STORE_RECEIPT,
    "metadata-undo": FileContent.METADATA_RECEIPT,
    "follower-undo": FileContent.FOLLOWER_RECEIPT,
    "audit-ledger": FileContent.AUDIT_LEDGER,
}
_GROUPS = ("inspect", "tier", "follower", "cluster", "simulate")
_OTHER_COMMANDS = {
    "verify-receipt": "verify --written-by",
    "receipts": "undo",
    "before-start": "before-start",
    "inspect-explain-snapshot": "inspect explain",
}

SETTING_NAMES = (
    "impact",
    "jobs",
    "jobs_per_disk",
    "max_read_rate",
    "priority",
    "max_memory",
    "fill_page_cache",
    "s3_endpoint_url",
    "s3_path_style",
    "s3_profile",
    "s3_anonymous",
    "s3_requester_pays",
    "s3_sse_c_key_file",
    "max_requests",
    "max_read_bytes",
    "key_prefix",
    "private_key",
    "chunk_size",
    "engine",
    "master",
    "spark_conf",
    "spark_tasks",
    "cache",
)
"""Names of ``SETTINGS``, which is loaded with all options, and this module with none."""

_MAGIC_NUMBERS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"PK\x03\x04", b"\xfd7zXZ\x00")
"""First bytes of files of gzip, zstd, bzip2, zip and xz."""

_JSON = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[\"{\[\]])")
_PAGE = re.compile(rb"\s*<(?:!doctype html|html)", re.IGNORECASE)
_METRICS = re.compile(rb"(?:#[^\n]*\n)*# (?:HELP|TYPE) [a-z]")
_BROKER_KEY = re.compile(
    rb"^[ \t]*(?:log\.dirs?|process\.roles|(?:advertised\.)?listeners|zookeeper\.connect|controller\.[a-z.]+|metadata\.log\.dir"
    rb"|inter\.broker\.[a-z.]+|remote\.log\.[a-z.]+|log\.(?:retention|segment)\.[a-z.]+|num\.partitions)[ \t]*[=:]",
    re.MULTILINE,
)
_BROKER_ID = re.compile(rb"^[ \t]*(?:broker|node)\.id[ \t]*[=:]", re.MULTILINE)
_META_VERSION = re.compile(rb"^version=[0-9]", re.MULTILINE)
"""In ``meta.properties``, which has the id too."""
_CLIENT_KEY = re.compile(
    rb"^[ \t]*(?:bootstrap\.servers|security\.protocol|sasl\.[a-z.]+|ssl\.[a-z.]+|client\.id|acks|linger\.ms)[ \t]*[=:]",
    re.MULTILINE,
)
_SCENARIO_TABLE = re.compile(rb"^\[(?:config|nodes|\[append\]|\[replica\]|\[listener\])\]", re.MULTILINE)
_STEP = re.compile(rb"(?:#[^\n]*\n|\s)*(?:[a-z]+(?:-[a-z]+)? [1-3]|fail-over)[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")
_SETTING = re.compile(rb"(?:#[^\n]*\n|\s)*([a-z0-9_]{2,40})[ \t]*=")


def recognize(path: str) -> NamedFile | None:
    """The kind of a file; None for text of no known kind, and for what is no regular file: a directory, a pipe, an absent file.

    Raises:
        ReadFailedError: it cannot be read.
    """
    if not os.path.isfile(path):
        return None
    try:
        opened = open_named_file(os.path.realpath(path))
    except SnaprebuildError:
        if os.path.lexists(path):
            raise
        return None  # deleted since: its reader reports that
    with opened as file:
        try:
            size_bytes = os.fstat(file.fileno()).st_size
            head = file.read(HEAD_BYTES)
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
    match = _SCHEMA.match(head)
    if match is not None:
        return _of_schema(match[1].decode())
    return _by_name(os.path.basename(path), head) or _by_content(head, size_bytes)


def _of_schema(name: str) -> NamedFile:
    """A document or a file of this program."""
    if name in _OF_SCHEMA:
        return _named(_OF_SCHEMA[name])
    command = _OTHER_COMMANDS.get(name)
    if command is None:
        group, _, rest = name.partition("-")
        command = f"{group} {rest}" if group in _GROUPS else name
    advice = _RESULT_TAKERS.get(command, "no command takes it")
    return NamedFile(FileContent.RESULT, f"{FileContent.RESULT.value} `{command}`", advice, command)


def _named(content: FileContent) -> NamedFile:
    return NamedFile(content, content.value, _ADVICE[content])


def _by_name(name: str, head: bytes) -> NamedFile | None:
    """A file with a name that only Kafka gives. A segment or an index is never text, as the log of a program with the same ending is."""
    from formats.partition.file_kind import kind_of_name

    found = kind_of_name(name)
    if found.kind is None:
        return None
    kafka = _of_kafka(found.kind)
    if kafka.content is FileContent.BROKER_FILE or b"\0" in head:
        return kafka
    if found.offset is not None and not head:
        return kafka
    return None


def _of_kafka(kind: DumpedKind) -> NamedFile:
    from formats.partition.file_names import DumpedKind

    content = {
        DumpedKind.LOG: FileContent.SEGMENT,
        DumpedKind.SNAPSHOT: FileContent.SNAPSHOT,
        DumpedKind.OFFSET_INDEX: FileContent.INDEX,
        DumpedKind.TIME_INDEX: FileContent.INDEX,
        DumpedKind.TRANSACTION_INDEX: FileContent.INDEX,
        DumpedKind.KRAFT_CHECKPOINT: FileContent.KRAFT_CHECKPOINT,
    }.get(kind, FileContent.BROKER_FILE)
    noun = f"{content.value} ({kind.value})" if content is FileContent.BROKER_FILE else content.value
    return NamedFile(content, noun, _ADVICE.get(content, _DUMPED))


def _by_content(head: bytes, size_bytes: int) -> NamedFile | None:
    """The kind of a file by its first bytes; None for text of an unknown kind."""
    from formats.partition.file_kind import kind_of_content

    if not head:
        return _named(FileContent.EMPTY)
    if head.startswith(_MAGIC_NUMBERS):
        return _named(FileContent.COMPRESSED)
    if not _is_text(head):
        kind = kind_of_content(head, size_bytes)
        return _named(FileContent.BINARY) if kind is None else _of_kafka(kind)
    content = _content_of_text(head)
    if content is not None:
        return _named(content)
    kind = kind_of_content(head, size_bytes)
    if kind is not None:
        return _of_kafka(kind)
    if _CLIENT_KEY.search(head):
        return _named(FileContent.CLIENT_PROPERTIES)
    return _named(FileContent.JSON) if _JSON.match(head) else None


def _content_of_text(head: bytes) -> FileContent | None:
    """The kind of a text file that Kafka did not write; None for text of another kind."""
    for pattern, content in (
        (_PAGE, FileContent.PAGE),
        (_METRICS, FileContent.METRICS),
        (_STEP, FileContent.ISR_SCENARIO),
    ):
        if pattern.match(head):
            return content
    if _BROKER_KEY.search(head) or (_BROKER_ID.search(head) and not _META_VERSION.search(head)):
        return FileContent.BROKER_PROPERTIES
    if _SCENARIO_TABLE.search(head):
        return FileContent.METADATA_SCENARIO
    return FileContent.SETTINGS if _has_settings(head) else None


def _has_settings(head: bytes) -> bool:
    match = _SETTING.match(head)
    return match is not None and match[1].decode() in SETTING_NAMES


def _is_text(head: bytes) -> bool:
    """Whether bytes are UTF-8 without a zero, except for a character that is cut off at the end."""
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and len(head) == HEAD_BYTES
    return True


class FilePurpose(NamedTuple):
    """The use of a file by an option or an argument."""

    noun: str
    """The noun for what it takes, for a sentence after "not"."""
    wanted: tuple[FileContent, ...]
    commands: tuple[str, ...] = ()
    """Commands whose JSON results are taken."""
    source: str = ""
    """Where such a file comes from; empty if the user writes it."""
    name: str = ""
    """The name of the file in a directory of this program; empty if it may have any."""
    may_be_directory: bool = False
    """A directory with the parts of a receipt is a receipt, too."""


KAFKA_FILES = (
    FileContent.SEGMENT,
    FileContent.SNAPSHOT,
    FileContent.INDEX,
    FileContent.KRAFT_CHECKPOINT,
    FileContent.BROKER_FILE,
)
SAVED_PLAN = FilePurpose("a saved plan", (FileContent.SAVED_PLAN,), source="`plan PATH --save FILE` writes one")
STAGED_PLAN = FilePurpose(
    "a staged plan", (FileContent.STAGED_PLAN,), source="`stage PATH --to DIR` writes DIR/plan.jsonl", name="plan.jsonl"
)
UNDONE_RECEIPT = FilePurpose(
    "a receipt",
    (FileContent.RECEIPT, FileContent.STORE_RECEIPT, FileContent.METADATA_RECEIPT, FileContent.FOLLOWER_RECEIPT),
    source="`undo` without RECEIPT lists the receipts",
    may_be_directory=True,
)
VERIFIED_RECEIPT = FilePurpose(
    "a receipt of files",
    (FileContent.RECEIPT,),
    source="`undo` without RECEIPT lists the receipts",
    may_be_directory=True,
)
REPORTED = FilePurpose(
    "a JSON result that `report` shows",
    (FileContent.RECEIPT,),
    ("scan", "fleet", "verify", "tier audit", "inspect transactions"),
    source="`scan PATH --save-json FILE` writes one",
)
SCAN_RESULT = FilePurpose("the JSON result of `scan`", (), ("scan",), source="`scan PATH --save-json FILE` writes one")
BROKER_PROPERTIES = FilePurpose("the server.properties of a broker", (FileContent.BROKER_PROPERTIES,))
CLIENT_PROPERTIES = FilePurpose("the configuration of a Kafka client", (FileContent.CLIENT_PROPERTIES,))
AUDIT_RESULT = FilePurpose(
    "the JSON result of `tier audit`", (), ("tier audit",), source="`tier audit STORE --save-json FILE` writes one"
)
AUDIT_LEDGER = FilePurpose("a ledger of `tier audit`", (FileContent.AUDIT_LEDGER,))
SETTINGS_FILE = FilePurpose("a file of settings", (FileContent.SETTINGS, FileContent.EMPTY))
ISR_SCENARIO = FilePurpose("a scenario of `simulate isr`", (FileContent.ISR_SCENARIO,))
METADATA_SCENARIO = FilePurpose("a scenario of `simulate metadata-log`", (FileContent.METADATA_SCENARIO,))
DUMPED = FilePurpose("a file of a log directory", (*KAFKA_FILES, FileContent.EMPTY, FileContent.BINARY))
SNAPSHOT = FilePurpose("a producer snapshot", (FileContent.SNAPSHOT,))
DIRECTORY = FilePurpose("a directory", ())


def check_file(path: str, purpose: FilePurpose) -> None:
    """Makes sure that a file is there, and is not recognized as something that the option or argument does not take.

    Args:
        path: of the file, as it was typed. Text of no known kind is left to its reader.
        purpose: what is taken.

    Raises:
        UsageError: it does not exist, is of another kind, or is a directory.
        ReadFailedError: it cannot be read.
    """
    if not os.path.lexists(path):
        source = f"; {purpose.source}" if purpose.source else ""
        raise UsageError(f"{absent_text(path)}{source}", path=path)
    inside = os.path.join(path, purpose.name)
    if purpose.name and os.path.isfile(inside):
        raise UsageError(f"is a directory: name {inside}", path=path)
    if os.path.isdir(path) and not purpose.may_be_directory:
        source = f"; {purpose.source}" if purpose.source else ""
        raise UsageError(f"is a directory, not {purpose.noun}{source}", path=path)
    check_kind(path, purpose)


def check_kind(path: str, purpose: FilePurpose) -> None:
    """Makes sure that a file is not recognized as something that the option or argument does not take.

    Args:
        path: of the file, as it was typed. An absent file, text of no known kind, directories and objects are left to their reader.
        purpose: what is taken.

    Raises:
        UsageError: it is of another kind, or the shell was to expand its path.
        ReadFailedError: it cannot be read.
    """
    if is_object(path):
        return
    if not os.path.lexists(path) and absent_text(path) != ABSENT:
        raise UsageError(absent_text(path), path=path)
    file = recognize(path)
    if file is None or file.content in purpose.wanted or (file.content is FileContent.RESULT and file.command in purpose.commands):
        return
    raise UsageError(f"is {file.noun}, not {purpose.noun}: {file.advice}", path=path)


def check_directories(paths: list[str] | None, *, server_properties: str | None = None, **options: str | None) -> None:
    """``check_paths``; and no path of a directory leads to a file, and the configuration of a broker to no other file.

    Args:
        paths: the arguments.
        server_properties: path of the configuration of a broker.
        options: more paths by the names of their options, None for those that are not given.

    Raises:
        UsageError: as ``check_paths``; a path is a file, whose kind the text names, or was to be expanded by the shell.
        ReadFailedError: a file cannot be read.
    """
    check_paths(paths, server_properties=server_properties, **options)
    for number, path in enumerate(paths or ()):
        if is_object(path) or os.path.isdir(path):
            continue
        _check_blanks((paths or [])[number:])
        if not os.path.lexists(path) and absent_text(path) != ABSENT:
            raise UsageError(absent_text(path), path=path)
        file = recognize(path)
        if file is None:
            continue  # reported where the directory is opened
        if file.content in KAFKA_FILES:
            raise UsageError(f"is {file.noun}: name the directory that it is in; {file.advice}", path=path)
        raise UsageError(f"is {file.noun}, not {DIRECTORY.noun}: {file.advice}", path=path)
    if server_properties is not None:
        _check_properties(server_properties)


def _check_blanks(paths: list[str]) -> None:
    """Raises UsageError where the first of some paths is absent, and it and the next ones with blanks between them are one path."""
    if os.path.lexists(paths[0]):
        return
    for count in range(2, len(paths) + 1):
        whole = " ".join(paths[:count])
        if os.path.lexists(whole):
            raise UsageError(f"does not exist: a path with a blank needs quotes: write {shell_word(whole)}", path=paths[0])


def _check_properties(path: str) -> None:
    """Names a file that is no configuration of a broker. One that is a configuration is read once in a run.

    Raises:
        UsageError: it does not exist, is of another kind, or does not parse.
        ReadFailedError: it cannot be read.
    """
    try:
        properties = run_facts().properties(path)
    except (UsageError, ReadFailedError):
        check_file(path, BROKER_PROPERTIES)
        raise
    if properties.get("log.dirs") is None and properties.get("log.dir") is None:
        check_file(path, BROKER_PROPERTIES)
