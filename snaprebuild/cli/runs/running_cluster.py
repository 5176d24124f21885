"""The running cluster that the options of a verb name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from snaprebuild.cli.file_kinds import CLIENT_PROPERTIES, check_kind
from snaprebuild.cli.options.common import quoted
from snaprebuild.errors import UsageError
from snaprebuild.storage.remote.client_config import read_client_config
from snaprebuild.tier.running_topic import RunningTopic

__all__ = ["client_settings", "running_topic", "servers_of"]

_PORT = re.compile("[0-9]{1,5}")


def servers_of(text: str, option: str) -> str:
    """Bootstrap servers, checked: ``HOST:PORT``, several with commas between.

    Args:
        text: as it was given.
        option: that gives it.

    Raises:
        UsageError: it has another form.
    """
    servers = [each.strip() for each in text.split(",")]
    for each in servers:
        host, colon, port = each.rpartition(":")
        is_port = _PORT.fullmatch(port) is not None and 0 < int(port) < 2**16
        if not colon or not host or not is_port or "/" in host or "@" in host:
            raise UsageError(f"{option}: expected HOST:PORT, several with commas between; found {quoted(each)}")
    return ",".join(servers)


def client_settings(path: str | None) -> dict[str, str]:
    """The settings of a client in a file; none without one.

    Raises:
        UsageError: the file is no such one, or has settings that may not be set.
    """
    if path is None:
        return {}
    check_kind(path, CLIENT_PROPERTIES)
    return read_client_config(path)


def running_topic(
    bootstrap_server: str | None, command_config: str | None, metadata_logs: Sequence[str] | None
) -> RunningTopic | None:
    """The records of a running cluster; None if no option names one.

    Args:
        bootstrap_server: value of ``--bootstrap-server``.
        command_config: value of ``--command-config``.
        metadata_logs: values of ``--metadata-log``.

    Raises:
        UsageError: an option has another form, or options do not go together.
    """
    if bootstrap_server is None:
        if command_config is not None:
            raise UsageError("--command-config goes with --bootstrap-server, which is not given")
        return None
    if metadata_logs:
        raise UsageError("--bootstrap-server and --metadata-log name the same records: give one of them")
    return RunningTopic(servers_of(bootstrap_server, "--bootstrap-server"), client_settings(command_config))
