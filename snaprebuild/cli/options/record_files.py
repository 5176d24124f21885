"""Options of verbs that write records of ``__remote_log_metadata`` into a file."""

from __future__ import annotations

from typing import Annotated

from formats.limits import INT32_MAX
from snaprebuild.cli.options.common import WholeNumber
from snaprebuild.cli.options.description import option

__all__ = ["MetadataPartitions", "Records"]

Records = Annotated[
    str | None,
    option(
        "--records-file",
        metavar="FILE",
        short="New file for the records of __remote_log_metadata, one JSON object per line",
        details="For clusters to which this machine has no connection.",
        default="none",
    ),
]
MetadataPartitions = Annotated[
    int | None,
    option(
        "--metadata-partitions",
        metavar="N",
        click_type=WholeNumber(1, INT32_MAX),
        short="Partitions of __remote_log_metadata",
        default="as the cluster has, else 50",
    ),
]
