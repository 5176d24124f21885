"""Options of the verbs that replay segments and write snapshots."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    pass

from snaprebuild.cli.options.description import option

__all__ = ["AcceptTopicIdZero", "Crc", "CrcOption", "SetAside"]


class Crc(StrEnum):
    """Whether checksums are computed."""

    CHECK = "check"
    SKIP = "skip"


SetAside = Annotated[
    bool,
    option(
        "--set-aside",
        short="Rename snapshots that are proven wrong to a name that Kafka ignores, and write the right ones",
        risk="a later start can no longer use the old file",
        default="keep them",
    ),
]


CrcOption = Annotated[
    Crc,
    option(
        "--crc",
        short="check: compute the checksum of every batch",
        details="skip: read headers only.",
        risk="damaged batches are replayed as if they were whole",
        default="check",
    ),
]


AcceptTopicIdZero = Annotated[
    bool,
    option(
        "--accept-topic-id-zero",
        short="Write snapshots also where remote storage is on and topics have no id (ZooKeeper, protocol below 2.8)",
        risk="Kafka uploads under topic id zero, and consumers lose these copies once the protocol is raised",
        default="refuse these topics",
    ),
]
