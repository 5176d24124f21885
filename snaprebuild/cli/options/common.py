"""Options that several verbs share, and the values made from them."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import click
import msgspec
import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.argument_checks import AS_OF_MAX_MS, JOBS_MAX, NOT_MS
from snaprebuild.cli.options.description import option
from snaprebuild.errors import UsageError
from snaprebuild.shell_words import option_words, shell_command

__all__ = [
    "AllowUnproven",
    "AllowUnverified",
    "AsOf",
    "Deadline",
    "DryRun",
    "Duration",
    "ExpirationMs",
    "ExpiryOptions",
    "Jobs",
    "LogOffset",
    "LogOptions",
    "Metrics",
    "Offset",
    "OneOf",
    "OutputFormat",
    "OutputOption",
    "Partition",
    "Paths",
    "ReceiptFile",
    "Report",
    "S3Options",
    "SelectionOptions",
    "ServerProperties",
    "Sha256",
    "Size",
    "Topic",
    "TopicIds",
    "TopicPartitions",
    "Verbose",
    "WholeNumber",
    "as_of_ms",
    "check_paths",
    "offsets_range",
    "quoted",
]


DEADLINE_MAX = 7 * 86_400
"""Seconds."""

_AMOUNT = re.compile(r"([0-9]{1,18})([A-Za-z]{1,3})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PARTITION_NAME = re.compile(r"[A-Za-z0-9._-]+-[0-9]{1,10}")
_DIGITS = re.compile(r"[0-9]{1,19}")
_SIGNED = re.compile(r"-?[0-9]{1,19}")
_OFFSETS = re.compile(r"([0-9]{0,19})(:)?([0-9]{0,19})")


class WholeNumber(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """A number from ``least`` to ``most``."""

    name = "N"
    noun = "a number"
    units: Mapping[str, int] = {}

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error where it is none, or out of the range."""
        text = str(value)
        pattern = _DIGITS if self.least >= 0 else _SIGNED
        if pattern.fullmatch(text) is None or not self.least <= int(text) <= self.most:
            self.fail(f"expected {self.noun} from {self.least} to {self.most}, found {quoted(text)}{self.hint(text)}", param, ctx)
        return int(text)

    def hint(self, text: str) -> str:
        """Ends the sentence about a text that is no such number."""
        return f"; units: {', '.join(self.units)}" if self.units else ""


class PartitionNumber(WholeNumber):
    """The number of a partition."""

    def hint(self, text: str) -> str:
        """A name such as ``orders-0`` has an option of its own."""
        if not _PARTITION_NAME.fullmatch(text):
            return ""
        return f"; `{shell_command(option_words('--topic-partition', text))}` takes one partition"


class Seconds(WholeNumber):
    """A number of seconds."""

    noun = "a number of seconds"


class Amount(WholeNumber):
    """A number from ``least`` to ``most``, plain or with a unit: 64MiB, 12h."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error where it is none, or out of the range."""
        match = _AMOUNT.fullmatch(str(value))
        if match is not None and match[2] in self.units:
            value = int(match[1]) * self.units[match[2]]
        return super().convert(value, param, ctx)


class Size(Amount):
    """Bytes."""

    name = "BYTES"
    units: Mapping[str, int] = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Duration(Amount):
    """Milliseconds."""

    name = "MS"
    units: Mapping[str, int] = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Sha256(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """64 hexadecimal digits, in lower case afterwards."""

    name = "SHA256"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The digits; a usage error if these are others."""
        text = str(value).lower()
        if not _SHA256.fullmatch(text):
            self.fail(f"expected 64 hexadecimal digits, found {quoted(str(value))}", param, ctx)
        return text


class OneOf(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """One of a few words, each with its value."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.name = "|".join(values)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of the word; a usage error if it is another one."""
        text = str(value).lower()
        if text not in self.values:
            self.fail(f"expected one of {', '.join(self.values)}, found {quoted(str(value))}", param, ctx)
        return self.values[text]


class OutputFormat(StrEnum):
    """The format of stdout."""

    TABLE = "table"
    JSON = "json"


# Hidden, because the text of a verb says what a PATH is; releases of click differ in how they show the help of an argument.
Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH...", hidden=True)]
ServerProperties = Annotated[
    str | None,
    option(
        "--server-properties",
        metavar="FILE",
        short="Configuration of the broker: its log.dirs, metadata log, producer expiration, retention and remote storage are used",
        default="none",
    ),
]
Topic = Annotated[
    list[str] | None,
    option(
        "--topic",
        metavar="PATTERN",
        short="Only topics that match this shell pattern; repeatable",
        default="all",
    ),
]
Partition = Annotated[
    list[int] | None,
    option(
        "--partition",
        metavar="N",
        click_type=PartitionNumber(0, INT32_MAX),
        short="Only this partition number; repeatable",
        default="all",
    ),
]
TopicPartitions = Annotated[
    list[str] | None,
    option(
        "--topic-partition",
        metavar="TOPIC-N",
        short="Only this partition, besides those that --topic selects; repeatable",
        default="all",
    ),
]
Offset = Annotated[
    str | None,
    option(
        "--offsets",
        metavar="FROM:TO",
        short="Only what is in this range of offsets of the log, both ends included",
        details="FROM: and :TO leave one end open, N is one offset.",
        default="all",
    ),
]
OutputOption = Annotated[
    OutputFormat,
    option(
        "--output",
        short="Format of the result: table for people, json for programs",
        default="table",
    ),
]
AllowUnverified = Annotated[
    bool,
    option(
        "--allow-unverified",
        short="Treat every complete copy as one that brokers read",
        details="For stores without a metadata log.",
        risk="the copy of a failed upload or of a former leader is taken for the log",
        default="leave such copies alone",
        warns=True,
    ),
]
AsOf = Annotated[
    str | None,
    option(
        "--as-of",
        metavar="TIME",
        short="Time that counts as now, as when producers expire: ISO 8601 (UTC without a zone), milliseconds since 1970, or now",
        default="now",
    ),
]
ExpirationMs = Annotated[
    int | None,
    option(
        "--expiration-ms",
        metavar="MS",
        click_type=Duration(1, INT64_MAX),
        short="Milliseconds (or 12h, 1d) after which the broker forgets an idle producer",
        risk="less than the broker uses loses producers",
        default="that of --server-properties, else 86400000 (one day)",
    ),
]
LogOffset = Annotated[
    int | None,
    option(
        "--offset",
        metavar="N",
        click_type=WholeNumber(0, INT64_MAX),
        short="Offset of the partition's log that is asked about",
        details="A state is that before it, as in the name of a snapshot.",
        default="the log end; of a fetch 0",
    ),
]
Deadline = Annotated[
    int | None,
    option(
        "--deadline",
        metavar="SECONDS",
        click_type=Seconds(0, DEADLINE_MAX),
        short="Stop after this time; what is written by then is complete, and the same command does the rest later",
        default="none",
    ),
]
DryRun = Annotated[
    bool,
    option(
        "--dry-run",
        short="Check everything, and change nothing",
        default="no",
    ),
]
AllowUnproven = Annotated[
    bool,
    option(
        "--allow-unproven",
        short="Write unproven snapshots into log directories too",
        risk="an open transaction may be forgotten, or a retry accepted as a new record",
        default="no, only --out gets them",
    ),
]
TopicIds = Annotated[
    list[str] | None,
    option(
        "--topic-id",
        metavar="TOPIC=ID",
        short="Id of a topic without partition.metadata (before 2.8), or of which several have copies; repeatable",
        default="the only one that is known",
    ),
]
Verbose = Annotated[
    int,
    option(
        "-v",
        "--verbose",
        count=True,
        short="Show all rows, and decisions, notes and all findings on stderr; -vv also where an error comes from",
        default="the worst 20 rows and 60 findings",
    ),
]
Report = Annotated[
    str | None,
    option(
        "--save-json",
        metavar="FILE",
        short="Write the JSON document to FILE too; an older one is replaced",
        default="none",
    ),
]
Metrics = Annotated[
    str | None,
    option(
        "--metrics",
        metavar="FILE.prom",
        short="Write metrics to FILE.prom too, for the textfile collector of Prometheus' node exporter; an older one is replaced",
        default="none",
    ),
]
ReceiptFile = Annotated[
    str | None,
    option(
        "--receipt",
        metavar="FILE",
        short="Where to record each file for `undo`; never replaced",
        default="a new file in $XDG_STATE_HOME/snaprebuild (~/.local/state/snaprebuild). If that is in a log directory or "
        "cannot be written to: --out, or the current directory",
    ),
]
Jobs = Annotated[
    int | None,
    option(
        "--jobs",
        metavar="N",
        click_type=WholeNumber(1, JOBS_MAX),
        short="Worker processes",
        default="as many as processors (within cpu.max), or as disks if those are more",
    ),
]


class SelectionOptions(msgspec.Struct, frozen=True):
    """Which partitions are selected: in each verb that may read several."""

    topic: Topic = None
    partition: Partition = None
    topic_partition: TopicPartitions = None


class LogOptions(SelectionOptions, frozen=True):
    """The log directories that are read, and which partitions of them."""

    paths: Paths = None
    server_properties: ServerProperties = None


class ExpiryOptions(msgspec.Struct, frozen=True):
    """When producers expire."""

    as_of: AsOf = None
    expiration_ms: ExpirationMs = None


class S3Options(msgspec.Struct, frozen=True):
    """The option and the settings of every verb that reads from object stores."""

    s3_endpoint_url: Annotated[
        str | None,
        option(
            "--s3-endpoint-url",
            metavar="URL",
            short="Object store of s3:// paths",
            default="AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile, else Amazon S3",
        ),
    ] = None
    s3_path_style: bool = False
    s3_profile: str | None = None
    s3_anonymous: bool = False
    s3_requester_pays: bool = False
    s3_sse_c_key_file: str | None = None
    max_requests: int | None = None
    max_read_bytes: int | None = None


def as_of_ms(text: str | None) -> int:
    """The moment for expiry, ms since 1970.

    Raises:
        UsageError: neither a number, nor a date, nor 'now'; before 1970 or after 9999.
    """
    if text is None or text == "now":
        return int(time.time() * 1000)
    expected = "expected a time like 2026-11-21T12:00:00Z, milliseconds since 1970, or now"
    try:
        found_ms = int(text) if text.isascii() and text.isdecimal() else _moment_ms(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--as-of: {expected}; found {quoted(text)}") from error
    if found_ms in NOT_MS and text.isdecimal():
        raise UsageError(f"--as-of: {expected}; {text} ms are before 1974: are they seconds, or a date without dashes?")
    if not 0 <= found_ms <= AS_OF_MAX_MS:
        raise UsageError(f"--as-of: {quoted(text)} is not between 1970 and 9999")
    return found_ms


def moment_ms(option: str, text: str) -> int:
    """The time that an option names in ISO 8601 where it names no offset, ms since 1970.

    Raises:
        UsageError: it is none.
    """
    try:
        return _moment_ms(text)
    except (ValueError, OverflowError) as error:
        expected = "expected an offset, or a time like 2026-11-21T12:00:00Z"
        raise UsageError(f"{option}: {expected}; found {quoted(text)}") from error


def _moment_ms(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def quoted(text: str) -> str:
    """A value as it was typed, cut where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def offsets_range(offsets: str | None) -> tuple[int | None, int | None]:
    """The range that ``--offsets`` names, both ends included, None for an open one.

    Raises:
        UsageError: it is no range.
    """
    if offsets is None:
        return None, None
    match = _OFFSETS.fullmatch(offsets)
    if match is None or not (match[1] or match[3]):
        dashed = re.fullmatch(r"([0-9]{1,19})-([0-9]{1,19})", offsets)
        meant = "" if dashed is None else f"; did you mean {dashed[1]}:{dashed[2]}?"
        raise UsageError(f"--offsets: expected FROM:TO, FROM:, :TO or one offset; found {quoted(offsets)}{meant}")
    offset_from = int(match[1]) if match[1] else None
    offset_to = offset_from
    if match[3]:
        offset_to = int(match[3])
    elif match[2]:
        offset_to = None
    if max(offset_from or 0, offset_to or 0) > INT64_MAX:
        raise UsageError(f"--offsets: no offset is larger than {INT64_MAX}; found {quoted(offsets)}")
    if offset_from is not None and offset_to is not None and offset_from > offset_to:
        raise UsageError(f"--offsets: no offset is in {quoted(offsets)}")
    return offset_from, offset_to


def check_paths(paths: list[str] | None, **options: str | None) -> None:
    """Makes sure that no path is empty, as a variable of a shell that is not set makes it, and that a file is no directory.

    A directory may be given where one with the parts of a receipt is taken in place of the receipt.

    Args:
        paths: the arguments.
        options: paths by the names of their options, None for those that are not given.

    Raises:
        UsageError: one is.
    """
    if not all(paths or ()):
        raise UsageError("a PATH is empty")
    for name, path in options.items():
        option = "--" + name.replace("_", "-")
        if path == "":
            raise UsageError(f"{option}: the path is empty")
        if path is not None and name not in ("out", "elections", "written_by") and os.path.isdir(path):
            raise UsageError(f"{option}: expected a file, found the directory {path}")
