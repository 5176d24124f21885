"""Options of the verb ``tier metadata``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from formats.limits import INT32_MAX
from formats.remote.aiven_custom_fields import CustomField
from snaprebuild.cli.options.common import DryRun, ReceiptFile, WholeNumber, quoted
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.remote_storage import (
    BootstrapServer,
    CommandConfig,
    ConfiguredOptions,
    LeaderLogDirs,
    MetadataPartitions,
    ProducerConfig,
    ProduceTo,
    Records,
)
from snaprebuild.errors import UsageError

__all__ = ["TierMetadataOptions", "custom_fields_of"]

NO_FIELDS = "none"


def custom_fields_of(text: str | None, configured: Collection[str] | None) -> tuple[CustomField, ...] | None:
    """The fields in the order of their tags; None without an option that shows them.

    Args:
        text: of ``--custom-metadata``; None without it.
        configured: names in the configuration of the broker; None without it.

    Raises:
        UsageError: one is unknown.
    """
    if text is None and configured is None:
        return None
    names = list(configured or ()) if text is None else text.split(",")
    if text == NO_FIELDS:
        names = []
    for name in names:
        if name not in set(CustomField):
            known = ", ".join(CustomField)
            source = "--server-properties: custom.metadata.fields.include" if text is None else "--custom-metadata"
            expected = f"expected {NO_FIELDS}, or some of {known} with commas between them"
            raise UsageError(f"{source}: {expected}; found {quoted(name)}")
    return tuple(each for each in CustomField if each in names)


class TierMetadataOptions(ConfiguredOptions, frozen=True):
    """Facts that remote storage does not show, and the place of the records."""

    log_dir: LeaderLogDirs = None
    log_start: Annotated[
        list[str] | None,
        option(
            "--log-start",
            metavar="TOPIC-PARTITION=OFFSET",
            short="Log start offset of the leader, for each partition; repeatable",
            details="One below that of --log-dir is refused.",
            risk="with one that is too low, deleted records are readable again",
            default="that of the log directories",
        ),
    ] = None
    custom_metadata: Annotated[
        str | None,
        option(
            "--custom-metadata",
            metavar="FIELDS",
            short="custom.metadata.fields.include of the plugin, or none",
            default="that of --server-properties, else records of Aiven's copies are refused",
        ),
    ] = None
    allow_gaps: Annotated[
        int | None,
        option(
            "--allow-gaps",
            metavar="N",
            click_type=WholeNumber(0, INT32_MAX),
            short="Write records although offsets are in no copy; leaders delete N of their own segments, as --dry-run shows them",
            details="Needs the logs of all replicas (--log-dir) and --metadata.",
            risk="the records of these segments are lost, because later offsets count as uploaded",
            default="refuse",
        ),
    ] = None
    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None
    metadata_partitions: MetadataPartitions = None
    lost_metadata_partition: Annotated[
        list[int] | None,
        option(
            "--lost-metadata-partition",
            metavar="N",
            click_type=WholeNumber(0, INT32_MAX),
            short="Partition of __remote_log_metadata that no broker has any more, so that --metadata-log lacks it; repeatable",
            risk="copies that brokers have deleted get records, as far as their objects are there",
            default="refuse to write records of its copies",
        ),
    ] = None
    records: Records = None
    log_dirs: Annotated[
        list[str] | None,
        option(
            "--log-dirs",
            metavar="DIR",
            short="WRITES new partition directories of __remote_log_metadata here; all brokers with a replica, stopped; repeatable",
            details="Needs the metadata log of the cluster (--metadata, or next to them).",
            default="none",
        ),
    ] = None
    produce_to: ProduceTo = None
    producer_config: ProducerConfig = None
    deletes: Annotated[
        int,
        option(
            "--deletes",
            metavar="N",
            click_type=WholeNumber(0, INT32_MAX),
            short="Copies that leaders may delete in their first pass after --produce-to, as --dry-run shows them",
            default="0",
        ),
    ] = 0
    metadata: Metadata = None
    dry_run: DryRun = False
    receipt: ReceiptFile = None
