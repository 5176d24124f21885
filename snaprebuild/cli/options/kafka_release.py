"""The release of Kafka that will start a broker."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.broker.releases import ALL_RELEASES, Release, parse_release
from snaprebuild.cli.options.common import quoted
from snaprebuild.cli.options.description import option
from snaprebuild.errors import UsageError

__all__ = ["KafkaRelease", "fleet_release_of", "release_of", "release_words"]

_FIRST = ".".join(map(str, ALL_RELEASES.first[:2]))
_LAST = ".".join(map(str, ALL_RELEASES.last[:2]))

KafkaRelease = Annotated[
    str | None,
    option(
        "--kafka-release",
        metavar="X.Y.Z",
        short="Release of Kafka that the broker runs next",
        default="every one that may be; the worst case counts",
    ),
]


def release_of(text: str | None) -> Release | None:
    """The release of the option; None without it.

    Raises:
        UsageError: it is no release, or the rules of its start are not known.
    """
    if text is None:
        return None
    release = parse_release(text)
    if release is None or not ALL_RELEASES.first <= release <= ALL_RELEASES.last:
        raise UsageError(f"--kafka-release: expected a release from {_FIRST} to {_LAST}, such as 3.9.1; found {quoted(text)}")
    return release


def fleet_release_of(text: str | None) -> Release | None:
    """The release of the option of ``fleet``, whose brokers may be of any release; None without it.

    Raises:
        UsageError: it is no release with all three numbers: 4.3.1 is affected, and 4.3.2 is not.
    """
    if text is None:
        return None
    release = parse_release(text)
    if release is None or text != ".".join(map(str, release)):
        raise UsageError(f"--kafka-release: expected a release such as 4.3.1; found {quoted(text)}")
    return release


def release_words(text: str | None) -> list[str]:
    """The option and its value, as words of the next command line; empty without a release."""
    return [] if text is None else ["--kafka-release", text]
