"""Options that the verbs on metadata logs share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import click
import msgspec
import typer

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.assumptions import Assumption
from snaprebuild.cli.options.common import WholeNumber, quoted
from snaprebuild.cli.options.description import OptionText, option
from snaprebuild.errors import UsageError

__all__ = [
    "AcceptOwnLog",
    "BrokerEpoch",
    "LeaderByWord",
    "Metadata",
    "MetadataOffset",
    "MetadataPath",
    "Peers",
    "QuorumAssumptions",
    "VoterLogs",
    "check_metadata",
    "voter_logs_of",
]

MetadataPath = Annotated[
    str,
    typer.Argument(metavar="DIR", hidden=True),
]


VoterLogs = Annotated[
    list[str] | None,
    option(
        "--voter",
        metavar="[ID=]DIR",
        short="Another voter's copy of __cluster_metadata, to prove what a majority holds; repeatable",
        details="ID is by default that of meta.properties.",
        default="none",
    ),
]


class VoterIds(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """Ids with commas between them."""

    name = "ID,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The ids; a usage error if they are none."""
        if not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", value) or any(int(each) > INT32_MAX for each in value.split(",")):
            self.fail(f"expected ids with commas between them, found {quoted(value)}", param, ctx)
        return tuple(int(each) for each in value.split(","))


class QuorumAssumptions(msgspec.Struct, frozen=True):
    """Facts about the quorum that a metadata log may not show."""

    voters: Annotated[
        tuple[int, ...] | None,
        Assumption(
            VoterIds(),
            OptionText(
                short="Ids of all voters",
                risk="with too few, too much counts as proven",
                default="from the records, else quorum-state",
            ),
        ),
    ] = None


def voter_logs_of(texts: Iterable[str] | None) -> tuple[tuple[int | None, str], ...]:
    """Id and location of each ``[ID=]DIR``.

    Raises:
        UsageError: an id is no int32, or a path is empty or that of a file.
    """
    return tuple(map(_voter_log_of, texts or ()))


def _voter_log_of(text: str) -> tuple[int | None, str]:
    from snaprebuild.cli.file_kinds import check_directories

    match = re.fullmatch(r"([0-9]{1,10})=(.*)", text, re.DOTALL)
    check_directories([text if match is None else match[2]])
    if match is None:
        return None, text
    if int(match[1]) > INT32_MAX:
        raise UsageError(f"--voter: expected [ID=]DIR with an id up to {INT32_MAX}, found {quoted(text)}")
    return int(match[1]), match[2]


Metadata = Annotated[
    str | None,
    option(
        "--metadata",
        metavar="DIR",
        short="Copy of __cluster_metadata, of any node, or a directory that holds it, also as s3://BUCKET/PREFIX",
        default="that of the log directories or of --server-properties, if the command reads these",
    ),
]


MetadataOffset = Annotated[
    int | None,
    option(
        "--metadata-offset",
        metavar="N",
        click_type=WholeNumber(0, INT64_MAX),
        short="Last offset of __cluster_metadata to use",
        default="all of it",
    ),
]


Peers = Annotated[
    list[str] | None,
    option(
        "--peer",
        metavar="DIR",
        short="Log directory of another replica, to compare leader epochs; repeatable",
        default="none",
    ),
]


LeaderByWord = Annotated[
    bool,
    option(
        "--i-am-the-leader",
        short="Confirm that these replicas are the leaders",
        details="For clusters with ZooKeeper, where no metadata log shows it.",
        risk="a replica that lags becomes the source for all others",
        default="unknown",
        warns=True,
    ),
]


AcceptOwnLog = Annotated[
    bool,
    option(
        "--accept-own-log",
        short="After an unclean stop, accept that only the broker's own metadata log shows when it registered last (rule R10)",
        risk="an old copy of the disk passes for the present one",
        default="unknown",
    ),
]


BrokerEpoch = Annotated[
    int | None,
    option(
        "--broker-epoch",
        metavar="N",
        click_type=WholeNumber(0, INT64_MAX),
        short="Epoch of the live broker of these directories",
        details="For runs next to a live broker, where no clean-shutdown marker exists.",
        default="from the marker",
    ),
]


def check_metadata(location: str | None) -> None:
    """Raises UsageError where ``--metadata`` is empty, as a variable of a shell that is not set makes it, or names a file."""
    from snaprebuild.cli.file_kinds import check_directories

    if location == "":
        raise UsageError("--metadata: the path is empty")
    check_directories(None if location is None else [location])
