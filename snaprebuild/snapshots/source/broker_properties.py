"""The configuration of a broker (``server.properties``), as far as it concerns log directories and producers."""

from __future__ import annotations

import contextlib
import os

from formats.broker.broker_files import Properties, read_properties
from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.text_lines import shown
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, first_of
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.storage.file_facts import is_nameable
from snaprebuild.storage.local.log_dir_guard import protect_log_dirs
from snaprebuild.storage.local.regular_file import read_small_file
from snaprebuild.storage.log_dir import directory_fault
from snaprebuild.typed_paths import absent_text, unexpanded_value_text

__all__ = [
    "COPY_QUOTA",
    "DEFAULT_LOG_DIR",
    "copy_quota_of",
    "expiration_at",
    "expiration_of",
    "has_remote_storage",
    "log_dirs_of",
    "log_dirs_online",
    "metadata_dir_of",
    "milliseconds_of",
    "number_of",
    "offline_log_dir",
    "protocol_of",
    "read_server_properties",
]

DEFAULT_LOG_DIR = "/tmp/kafka-logs"  # noqa: S108
"""``log.dir`` where neither it nor ``log.dirs`` is set."""
LOG_DIRS_MAX = 1_000
"""Each of them is looked at."""
REMOTE_STORAGE_OF_BROKER = "remote.log.storage.system.enable"
"""Key of ``server.properties``: false by default."""
COPY_QUOTA = "remote.log.manager.copy.max.bytes.per.second"
"""Key of ``server.properties``, and of the dynamic settings of brokers, from 3.8 on: no limit by default."""
EXPIRATION_BEFORE_3_4_MS = 604_800_000
"""Brokers before 3.4 expire producers by ``transactional.id.expiration.ms``, seven days by default (KIP-854)."""


def read_server_properties(path: str) -> Properties:
    """Reads a broker's configuration. From now on this process creates nothing of its own in the log directories that it names.

    Raises:
        UsageError: it is absent or does not parse.
    """
    data = read_small_file(path)
    if data is None:
        raise UsageError(absent_text(path), path=path)
    try:
        properties = read_properties(data, file=path)
    except FormatError as error:
        raise UsageError(str(error)) from error
    with contextlib.suppress(UsageError):  # raised again where the directories are needed
        protect_log_dirs(_unexpanded_log_dirs(properties))
    with contextlib.suppress(UsageError):
        metadata_dir = metadata_dir_of(properties)
        protect_log_dirs([] if metadata_dir is None else [metadata_dir])
    return properties


def log_dirs_of(properties: Properties) -> list[str]:
    """``log.dirs``, else ``log.dir``, else Kafka's default.

    Raises:
        UsageError: none, as Kafka refuses it, more than any machine has disks, one with a name that no directory has, or one that only
            the broker or a shell expands.
    """
    paths = _unexpanded_log_dirs(properties)
    for path in paths:
        _check_expanded("log.dirs", path)
    return paths


def _unexpanded_log_dirs(properties: Properties) -> list[str]:
    """The directories as they are written.

    Raises:
        UsageError: as ``log_dirs_of``, but a part that is to be expanded is no error.
    """
    value = properties.get("log.dirs") or properties.get("log.dir") or DEFAULT_LOG_DIR
    if value.count(",") >= LOG_DIRS_MAX:
        raise UsageError(f"server.properties: log.dirs: expected at most {LOG_DIRS_MAX} directories, found {value.count(',') + 1}")
    paths = [part.strip() for part in value.split(",") if part.strip()]
    if not paths:
        raise UsageError("server.properties: log.dirs: expected at least one directory, found none")
    for path in paths:
        _check_nameable("log.dirs", path)
    return paths


def metadata_dir_of(properties: Properties) -> str | None:
    """``metadata.log.dir``, absolute; it need not be one of ``log.dirs``. None where it is not set: the first of these has the log then.

    Raises:
        UsageError: a name that no directory has.
    """
    value = (properties.get("metadata.log.dir") or "").strip()
    _check_nameable("metadata.log.dir", value)
    _check_expanded("metadata.log.dir", value)
    return os.path.abspath(value) if value else None


def _check_nameable(name: str, path: str) -> None:
    """Escapes of a properties file make characters that no path has."""
    if not is_nameable(path):
        raise UsageError(f"server.properties: {name}: expected a directory, found {shown(path)}")


def _check_expanded(name: str, path: str) -> None:
    """A value that the broker gets from elsewhere, or that Kafka reads otherwise than a shell does."""
    text = unexpanded_value_text(path)
    if text is not None and not os.path.lexists(path):
        advice = "Write the path into a copy of the file, or name the log directories as PATH"
        raise UsageError(f"server.properties: {name}: found {shown(path)}: {text}. {advice}")


def relative_log_dirs(properties: Properties, path: str | None) -> list[Finding]:
    """A note about ``log.dirs`` that are relative paths: this process and the broker take them from their own working directories.

    Args:
        properties: of a broker.
        path: of its file.

    Raises:
        UsageError: as ``log_dirs_of``.
    """
    relative = [each for each in log_dirs_of(properties) if not os.path.isabs(each)]
    if not relative:
        return []
    message = (
        f"log.dirs has relative paths ({first_of(relative)}): they were taken from the current directory, {os.getcwd()}; "
        "the broker takes them from the directory in which it was started"
    )
    return [Finding("relative-log-dirs", Severity.NOTE, path or "", message)]


def log_dirs_online(properties: Properties, path: str | None) -> tuple[list[str], list[Finding]]:
    """The ``log.dirs`` that can be read, absolute, and a finding for each of the others; all of them where none can.

    Args:
        properties: of a broker.
        path: of its file, for the message.

    Raises:
        UsageError: there are none.
    """
    if not (properties.get("log.dirs") or properties.get("log.dir") or os.path.isdir(DEFAULT_LOG_DIR)):
        raise UsageError(f"has no log.dirs, and Kafka's default {DEFAULT_LOG_DIR} does not exist", path=path)
    log_dirs = [os.path.abspath(each) for each in log_dirs_of(properties)]
    offline = {each: fault for each in log_dirs if (fault := directory_fault(each)) is not None}
    online = [each for each in log_dirs if each not in offline]
    relative = relative_log_dirs(properties, path)
    if not online:
        if relative:
            raise UsageError(f"none of the log.dirs exists. Note that {relative[0].message}", path=path)
        return log_dirs, []  # reported as any path that does not exist
    return online, [*relative, *(offline_log_dir(each, fault) for each, fault in offline.items())]


def offline_log_dir(path: str, fault: str) -> Finding:
    """``LogManager.createAndValidateLogDirs`` continues without a log directory that it can neither read nor create."""
    message = f"{fault}: this log directory is left out, as a broker would take it for offline; the others are not affected"
    cause = FindingCause.OFFLINE_LOG_DIR
    return Finding("offline-log-dir", Severity.STORAGE, path, message, is_unread=True, cause=cause)


def expiration_of(properties: Properties) -> int:
    """The longest expiration that a broker with this configuration may use, in ms.

    It is ``producer.id.expiration.ms`` if that is set. Else it is the default, or ``transactional.id.expiration.ms`` if that is set or
    the broker speaks a protocol before 3.4, because such brokers expire producers by it. A window that is too long costs time; one that
    is too short costs producers.

    Raises:
        UsageError: a value is no number.
    """
    if properties.get("producer.id.expiration.ms") is not None:
        return milliseconds_of(properties, "producer.id.expiration.ms", DEFAULT_EXPIRATION_MS)
    if properties.get("transactional.id.expiration.ms") is not None:
        return max(DEFAULT_EXPIRATION_MS, milliseconds_of(properties, "transactional.id.expiration.ms", DEFAULT_EXPIRATION_MS))
    protocol = protocol_of(properties)
    is_old = protocol is not None and protocol < (3, 4)
    return EXPIRATION_BEFORE_3_4_MS if is_old else DEFAULT_EXPIRATION_MS


def protocol_of(properties: Properties) -> tuple[int, ...] | None:
    """The first two numbers of ``inter.broker.protocol.version``; None where it is not set: then it is that of the release.

    Raises:
        UsageError: a part is no number.
    """
    protocol = properties.get("inter.broker.protocol.version")
    if protocol is None or not protocol.strip():
        return None
    try:
        return tuple(int(part) for part in protocol.split("-")[0].split(".")[:2])
    except ValueError as error:
        raise UsageError(f"server.properties: inter.broker.protocol.version: {error}") from error


def has_remote_storage(properties: Properties) -> bool:
    """Whether remote storage is on for the broker; False by default, and no topic of the broker has remote storage then."""
    return (properties.get(REMOTE_STORAGE_OF_BROKER) or "").strip().lower() == "true"


def expiration_at(properties: Properties | None, version: tuple[int, int]) -> int:
    """The expiration that a broker of this version uses, in ms; without a configuration, its default.

    Raises:
        UsageError: the value is no number.
    """
    name = "producer.id.expiration.ms"
    default_ms = DEFAULT_EXPIRATION_MS
    if version < (3, 4):
        name = "transactional.id.expiration.ms"
        default_ms = EXPIRATION_BEFORE_3_4_MS
    return milliseconds_of(properties, name, default_ms)


def milliseconds_of(properties: Properties | None, name: str, default_ms: int) -> int:
    """The value of a property, in ms; the default where it is not set, or there is no configuration.

    Raises:
        UsageError: the value is no number.
    """
    number = number_of(properties, name)
    return default_ms if number is None else number


def copy_quota_of(properties: Properties) -> int | None:
    """``remote.log.manager.copy.max.bytes.per.second``: None where it is not set, or is no number with which a broker starts."""
    with contextlib.suppress(UsageError):
        return number_of(properties, COPY_QUOTA)
    return None


def number_of(properties: Properties | None, name: str, greatest: int = INT64_MAX, *, may_be_unlimited: bool = False) -> int | None:
    """The value of a property that counts from 1; None where it is not set, or there is no configuration.

    Args:
        properties: of a broker.
        name: of the property.
        greatest: value that Kafka takes.
        may_be_unlimited: a negative number is allowed, and means no limit.

    Raises:
        UsageError: the value is no such number.
    """
    text = None if properties is None else properties.get(name)
    if text is None:
        return None
    number = text.strip()
    digits = number.removeprefix("-") if may_be_unlimited else number
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and 1 <= int(digits) <= greatest):
        expected = f"a number from 1 to {greatest}" + (", or -1 for no limit" if may_be_unlimited else "")
        raise UsageError(f"server.properties: {name}: expected {expected}, found {number[:60]!r}")
    return int(number)
