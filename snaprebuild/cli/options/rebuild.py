"""Options of the verbs that replay segments and write snapshots."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass

__all__ = ["AcceptTopicIdZero", "Crc", "CrcOption", "DryRun", "SetAside"]


class Crc(StrEnum):
    """Whether checksums are computed."""

    CHECK = "check"
    SKIP = "skip"


SetAside = Annotated[
    bool,
    typer.Option(
        "--set-aside",
        help="Rename snapshots that are proven wrong to a name that Kafka ignores, and write the right ones. Risk: a later start "
        "can no longer use the old file. Default: keep them.",
    ),
]


CrcOption = Annotated[
    Crc,
    typer.Option(
        "--crc",
        show_default=False,
        help="check: compute the checksum of every batch. skip: read headers only. Risk: damaged batches are replayed as "
        "if they were whole. Default: check.",
    ),
]


AcceptTopicIdZero = Annotated[
    bool,
    typer.Option(
        "--accept-topic-id-zero",
        help="Write snapshots also where remote storage is on and topics have no id (ZooKeeper, protocol below 2.8). Risk: Kafka "
        "uploads under topic id zero, and consumers lose these copies once the protocol is raised. Default: refuse these topics.",
    ),
]


DryRun = Annotated[bool, typer.Option("--dry-run", help="Replay and judge, and write nothing. Default: write.")]
