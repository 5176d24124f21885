"""The keyword arguments of the functions of the library, for functions that pass them on.

A test compares their names and types with the signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from snaprebuild.library.verbs import FilePath, Paths
from snaprebuild.storage.store import S3Settings

__all__ = ["AuditOptions", "PlanOptions", "RebuildOptions", "ScanOptions", "VerifyOptions"]


class _Options(TypedDict, total=False):
    """Arguments of all functions."""

    topics: str | Sequence[str]
    partitions: int | Sequence[int]
    topic_partitions: str | Sequence[str]
    s3: S3Settings
    impact: str | None
    max_read_rate: int | None


class _LogOptions(_Options, total=False):
    """Arguments of the functions that read log directories."""

    server_properties: FilePath | None
    kafka_release: str | None


class ScanOptions(_LogOptions, total=False):
    """Arguments of ``scan``."""


class _ReplayOptions(_LogOptions, total=False):
    """Arguments of the functions that replay."""

    offset_from: int | None
    offset_to: int | None
    check_crc: bool
    as_of_ms: int | None
    expiration_ms: int | None


class VerifyOptions(_ReplayOptions, total=False):
    """Arguments of ``verify``."""


class PlanOptions(_ReplayOptions, total=False):
    """Arguments of ``plan``."""

    out: FilePath | None
    broker_running: bool
    boundaries: str
    replay_from: str
    set_aside: bool
    drop_expired: bool
    allow_unproven: bool
    accept_topic_id_zero: bool
    metadata: FilePath | None


class RebuildOptions(PlanOptions, total=False):
    """Arguments of ``rebuild``."""

    dry_run: bool
    receipt: FilePath | None
    results: FilePath | None


class AuditOptions(_Options, total=False):
    """Arguments of ``audit``."""

    level: str
    metadata_log: Paths
    key_prefix: str
    private_key: Paths
    local_log_start: str | Sequence[str]
    log_dir: Paths
    metadata: FilePath | None
    bootstrap_server: str | None
    command_config: FilePath | None
    ledger: FilePath | None
    as_of_ms: int | None
    expiration_ms: int | None
