"""Settings: what ``--set``, the environment and a configuration file may set. None of them permits a write or weakens evidence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from formats.limits import INT64_MAX
from snaprebuild.argument_checks import JOBS_MAX
from snaprebuild.cli.options.common import OneOf, Size, WholeNumber, quoted
from snaprebuild.cli.options.description import OptionText
from snaprebuild.errors import UsageError
from snaprebuild.typed_paths import did_you_mean

__all__ = ["CONFIG_FILE", "CONFIG_VARIABLE", "SETTINGS", "Setting", "SettingValue", "TextValue", "read_settings", "variable_of"]

CONFIG_FILE = "/etc/snaprebuild/config.toml"
CONFIG_VARIABLE = "SNAPREBUILD_CONFIG"
CONFIG_BYTES_MAX = 1 << 16

SPARK_TASKS_MAX = 100_000
"""Each costs the driver memory and some milliseconds."""

CHUNK_SIZE_MAX = 1_073_741_823

MEMORY_BYTES_MIN = 64 << 20
"""The command itself, and a block of a segment."""


class TextValue(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """Any text."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; a usage error if it is none."""
        if not isinstance(value, str):
            self.fail(f"expected a text, found {quoted(str(value))}", param, ctx)
        return value


FLAG = OneOf({"true": True, "false": False})


class Setting(msgspec.Struct, frozen=True):
    """A setting.

    Attributes:
        kind: converts a value.
        description: what it sets; None for one that is an option too, with a description of its own.
        is_list: each ``--set`` adds a value.
    """

    kind: click.ParamType  # type: ignore[type-arg]
    description: OptionText | None = None
    is_list: bool = False

    @property
    def help(self) -> str:
        """All sentences; empty for one that is an option too."""
        return "" if self.description is None else self.description.whole


class SettingValue(NamedTuple):
    """The value of a setting, and where it is from."""

    value: Any
    origin: str


SETTINGS: dict[str, Setting] = {
    "impact": Setting(OneOf({"low": "low", "normal": "normal", "full": "full"})),
    "jobs": Setting(WholeNumber(1, JOBS_MAX)),
    "jobs_per_disk": Setting(
        WholeNumber(1, JOBS_MAX),
        OptionText(short="Worker processes per disk", default="one for a rotating disk, else as many as `jobs`"),
    ),
    "max_read_rate": Setting(
        Size(1, INT64_MAX),
        OptionText(
            short="Bytes (or 64MiB) per second that the run may read from files, with all workers and disks",
            default="64 MiB for each disk while a broker runs, else any number",
        ),
    ),
    "priority": Setting(
        OneOf({"auto": "auto", "idle": "idle", "usual": "usual"}),
        OptionText(
            short="idle: lowest priority for processor, disk and memory",
            details="usual: that of the shell. auto: idle while a broker runs, else usual.",
            default="auto",
        ),
    ),
    "max_memory": Setting(
        Size(MEMORY_BYTES_MIN, INT64_MAX),
        OptionText(
            short="Memory limit of the run with all workers (bytes, or 2GiB), at least 64MiB",
            details="A partition that needs more fails alone.",
            default="any amount",
        ),
    ),
    "fill_page_cache": Setting(
        FLAG,
        OptionText(short="Keep what is read in the page cache for the next run", default="false, the page cache stays as it was"),
    ),
    "s3_endpoint_url": Setting(TextValue("URL")),
    "s3_path_style": Setting(
        FLAG,
        OptionText(short="Address buckets as URL/bucket", details="For stores other than Amazon's.", default="as the SDK decides"),
    ),
    "s3_profile": Setting(
        TextValue("NAME"), OptionText(short="Profile of the shared AWS configuration", default="as the SDK decides")
    ),
    "s3_anonymous": Setting(FLAG, OptionText(short="Sign no request", details="For public buckets.", default="false")),
    "s3_requester_pays": Setting(
        FLAG, OptionText(short="Pay for requests and transfer of a bucket of somebody else", default="false")
    ),
    "s3_sse_c_key_file": Setting(
        TextValue("FILE"),
        OptionText(
            short="Key of objects encrypted with a customer's key (SSE-C): 32 bytes, raw or in base64",
            default="$SNAPREBUILD_S3_SSE_C_KEY in base64, else none",
        ),
    ),
    "max_requests": Setting(
        WholeNumber(1, INT64_MAX),
        OptionText(
            short="Requests that the run may send to object stores",
            details="At the limit it stops with exit code 3.",
            default="any number",
        ),
    ),
    "max_read_bytes": Setting(
        Size(1, INT64_MAX),
        OptionText(
            short="Bytes (or 64MiB) that the run may read from object stores",
            details="At the limit it stops with exit code 3.",
            default="any number",
        ),
    ),
    "key_prefix": Setting(
        TextValue("TEXT"),
        OptionText(
            short="The plugin's key.prefix below STORE",
            details="It precedes the topic as it is, without a slash.",
            default="the last part of STORE if keys begin with it, else none",
        ),
    ),
    "private_key": Setting(
        TextValue("[NAME=]FILE"),
        OptionText(
            short="RSA key in PEM for segments that Aiven's plugin encrypted",
            details="Needs snaprebuild[encryption]. NAME is the key pair in the manifests; FILE alone is for all others.",
            default="none",
        ),
        is_list=True,
    ),
    "chunk_size": Setting(
        Size(1, CHUNK_SIZE_MAX),
        OptionText(
            short="The plugin's chunk.size, bytes (or 4MiB), for what `tier upload` writes",
            default="that of --server-properties, else 4 MiB",
        ),
    ),
    "engine": Setting(OneOf({"process": "process", "spark": "spark", "auto": "auto"})),
    "master": Setting(TextValue("URL")),
    "spark_conf": Setting(
        TextValue("KEY=VALUE"),
        OptionText(short="A setting of Spark, such as spark.driver.memory=2g", default="spark-defaults.conf"),
        is_list=True,
    ),
    "spark_tasks": Setting(
        WholeNumber(1, SPARK_TASKS_MAX),
        OptionText(
            short="Tasks of each step of a Spark job",
            details="The job asks a cluster for executors for so many tasks.",
            default="as many as the bytes and partitions need",
        ),
    ),
    "cache": Setting(TextValue("DIR")),
}
"""By name, in the order of the pages."""


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return f"SNAPREBUILD_{name.upper()}"


def read_settings(texts: Sequence[str], config: str | None) -> dict[str, SettingValue]:
    """The settings of this run: ``--set`` has precedence over the environment, and the environment over the file.

    Args:
        texts: of ``--set``, NAME=VALUE each.
        config: of ``--config``; None for the usual place.

    Raises:
        UsageError: the file cannot be read or is no TOML, a name is unknown, or a value has the wrong type.
    """
    path = config or os.environ.get(CONFIG_VARIABLE) or (CONFIG_FILE if os.path.exists(CONFIG_FILE) else None)
    values = {} if path is None else {name: _converted(name, value, path) for name, value in _file(path)}
    for name, setting in SETTINGS.items():
        if text := os.environ.get(variable_of(name)):
            values[name] = _converted(name, text.split() if setting.is_list else text, f"${variable_of(name)}")
    for name, own in _by_name(texts).items():
        values[name] = _converted(name, own if SETTINGS[name].is_list else own[-1], "--set")
    return values


def _converted(name: str, value: Any, origin: str) -> SettingValue:
    setting = SETTINGS[name]
    values = value if setting.is_list and isinstance(value, list) else [value]
    try:
        converted = [setting.kind.convert(each, None, None) for each in values]
    except click.BadParameter as error:
        raise UsageError(f"{name}: {error.message} (from {origin})") from None
    return SettingValue(converted if setting.is_list else converted[0], origin)


def _by_name(texts: Iterable[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set: expected NAME=VALUE, found {quoted(text)}")
        values.setdefault(_setting_name(name, "--set"), []).append(value)
    return values


def _setting_name(name: str, origin: str) -> str:
    own = name.replace("-", "_")
    if own not in SETTINGS:
        meant = did_you_mean(own, SETTINGS)
        raise UsageError(f"{origin}: {quoted(name)} is no setting; {meant or 'expected one of ' + ', '.join(SETTINGS)}")
    return own


def _file(path: str) -> Iterator[tuple[str, Any]]:
    import tomllib

    from snaprebuild.cli.file_kinds import SETTINGS_FILE, check_file
    from snaprebuild.storage.local.regular_file import open_named_file

    check_file(path, SETTINGS_FILE)
    with open_named_file(path) as file:
        data = file.read(CONFIG_BYTES_MAX + 1)
    if len(data) > CONFIG_BYTES_MAX:
        raise UsageError(f"is larger than {CONFIG_BYTES_MAX} bytes, and no configuration file", path=path)
    try:
        settings = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"is no TOML: {error}", path=path) from error
    yield from ((_setting_name(name, path), value) for name, value in settings.items())
