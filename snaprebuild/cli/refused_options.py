"""Global options that a verb does not take, each with the reason. Without an entry here, a verb takes the option."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["refusal_of"]


class Refusal(NamedTuple):
    """Why some verbs do not take an option."""

    options: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str


_DOCUMENTS = ("fleet", "report", "undo")
_METADATA = ("cluster image", "cluster history", "cluster check", "cluster isr", "cluster advise")
_SIMULATIONS = ("simulate isr", "simulate metadata-log")
_AT_A_START = ("install", "before-start")
_INVENTORIES = ("tier inventory", "tier metadata")
_INSPECT = ("inspect dump", "inspect diff", "inspect explain", "inspect transactions", "inspect stats")

_REFUSALS = (
    Refusal(
        ("--impact",),
        (*_DOCUMENTS, "inspect diff", *_INVENTORIES),
        "it reads documents, lists and small files, and no segment",
    ),
    Refusal(("--impact",), _METADATA, "it reads metadata logs, which are small, and no other segment"),
    Refusal(("--impact", "--jobs"), _SIMULATIONS, "it computes in one process, and reads no disk"),
    Refusal(("--impact",), _AT_A_START, "a broker waits for it: it reads as fast as it can"),
    Refusal(("--impact",), ("tier upload",), "it reads each segment once, as the upload of a broker does"),
    Refusal(("--jobs",), ("scan", "plan", "follower fetch-path"), "it reads small files and ends of segments, with threads"),
    Refusal(("--jobs",), ("inspect dump", "inspect diff"), "it goes through the files in the order of the command line"),
    Refusal(("--jobs",), ("inspect records",), "it reads one partition after the other, in the order of the offsets"),
    Refusal(
        ("--jobs",),
        (*_DOCUMENTS, *_INVENTORIES),
        "it reads documents, lists and small files, and replays nothing",
    ),
    Refusal(("--jobs",), _METADATA, "a metadata log is read from its start to its end, in one process"),
    Refusal(("--jobs",), ("tier upload",), "it uploads one segment after the other, in the order of the log"),
    Refusal(
        ("--metrics",),
        (
            "plan",
            "stage",
            "rebuild",
            *_AT_A_START,
            "undo",
            "tier repair",
            "tier upload",
            "tier metadata",
            "follower build",
            "follower repair",
        ),
        "it is run once: what it leaves is in the metrics of `scan`, `verify`, `tier audit` and `follower check`",
    ),
    Refusal(
        ("--metrics",),
        ("fleet", "report", "inspect dump", "inspect records", "inspect diff", "inspect explain", "inspect stats"),
        "it answers a person, and has no state to watch",
    ),
    Refusal(
        ("--metrics",),
        ("follower offsets", "follower fetch-path", "follower plan", "cluster image", "cluster history", *_SIMULATIONS),
        "it answers a question of a person, and has no state to watch",
    ),
    Refusal(("--metrics",), ("cluster source", "cluster advise"), "it is asked before a repair, and has no state to watch"),
    Refusal(
        ("--engine", "--master", "--cache"),
        ("stage", *_AT_A_START, "follower build", "follower check", "follower repair", "cluster source"),
        "it works on the disks of one broker, with processes of its machine",
    ),
    Refusal(
        ("--engine", "--master", "--cache"),
        (*_INSPECT, "follower offsets", "follower fetch-path", "follower plan"),
        "it reads the disks of one broker, with processes of its machine; Spark SQL reads batches of many (docs/guides/spark.md)",
    ),
    Refusal(
        ("--cache",),
        ("inspect records",),
        "it reads every record again: a cache has effects of segments, and no records",
    ),
    Refusal(
        ("--engine", "--master", "--cache"),
        (*_DOCUMENTS, *_METADATA, *_SIMULATIONS, *_INVENTORIES),
        "it reads too little for a cluster of machines",
    ),
    Refusal(("--engine", "--master", "--cache"), ("tier repair", "tier upload"), "it writes to remote storage from one machine"),
    Refusal(("--cache",), ("scan", "plan"), "it replays no segment, so that there are no effects to keep"),
    Refusal(("--cache",), ("tier audit",), "an audit reads each copy anew: damage of an old copy must be seen"),
    Refusal(("--s3-endpoint-url",), (*_AT_A_START, "report", *_SIMULATIONS), "it works with local files only"),
)


def refusal_of(verb: str, option: str) -> str | None:
    """Why a verb does not take a global option.

    Args:
        verb: its words, such as ``tier audit``.
        option: such as ``--engine``.

    Returns:
        The reason, a sentence without its full stop; None where the table has none.
    """
    for each in _REFUSALS:
        if option in each.options and verb in each.verbs:
            return each.reason
    return None
