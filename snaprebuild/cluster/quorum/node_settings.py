"""What the configuration of a KRaft node says of its metadata log.

Source: ``MetadataLogConfig`` of 4.3.1; ``ConfigDef.parseType``.
"""

from __future__ import annotations

import re

from formats.broker.broker_files import Properties
from snaprebuild.cluster.quorum.log_start_policies import (
    DEFAULT_CHECKPOINT_INTERVAL_MS,
    DEFAULT_CHECKPOINT_RECORD_BYTES,
    DEFAULT_RETENTION_BYTES,
    DEFAULT_RETENTION_MS,
    CheckpointSettings,
    StartSettings,
)
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.source.broker_properties import log_dirs_of, metadata_dir_of

__all__ = ["metadata_directory_of", "start_settings_of"]

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def metadata_directory_of(properties: Properties) -> str:
    """Log directory that holds the metadata log: ``metadata.log.dir``, else the first of ``log.dirs``."""
    return metadata_dir_of(properties) or log_dirs_of(properties)[0]


def start_settings_of(properties: Properties, path: str) -> StartSettings:
    """Settings that move the start, and take the checkpoints that it moves to. A negative retention, which is none, becomes -1.

    Args:
        properties: a node's configuration.
        path: of it, for messages.

    Raises:
        UsageError: a value is one that Kafka refuses.
    """

    def number(name: str, default: int, least: int) -> int:
        text = properties.get(name)
        if text is None:
            return default
        value = int(text) if _NUMBER.fullmatch(text.strip()) else None
        if value is None or not least <= value < 2**63:
            raise UsageError(f"{name}: expected a number from {least} to {2**63 - 1}, found {text[:60]!r}", path=path)
        return value

    return StartSettings(
        max(-1, number("metadata.max.retention.bytes", DEFAULT_RETENTION_BYTES, -(2**63))),
        max(-1, number("metadata.max.retention.ms", DEFAULT_RETENTION_MS, -(2**63))),
        checkpoints=CheckpointSettings(
            number("metadata.log.max.snapshot.interval.ms", DEFAULT_CHECKPOINT_INTERVAL_MS, 0),
            number("metadata.log.max.record.bytes.between.snapshots", DEFAULT_CHECKPOINT_RECORD_BYTES, 1),
        ),
    )
