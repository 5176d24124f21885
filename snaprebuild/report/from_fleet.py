"""A document of ``fleet`` on a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from snaprebuild.documents.saved_documents import (
    DocumentHead,
    UnexpectedValueError,
    checked,
    is_of,
    members_of,
    optional,
    text_of,
    whole,
)
from snaprebuild.report.page_data import PageData, PageDocument, PagePartition
from snaprebuild.report.page_writer import PageSink

__all__ = ["fleet_page", "take_fleet"]

STREAMED = ("assumes", "steps", "brokers", "partitions", "findings")

LACKS = ("segments and snapshots of the replicas: the documents of `scan` tell them; all of them make one page",)

STEPS = ["step", "broker", "do", "partitions", "snapshots", "bytes to read at most", "minutes", "bytes freed"]

REPLICAS = [
    "broker",
    "state",
    "log start",
    "log end",
    "leader epoch",
    "missing",
    "in doubt",
    "blocked segments",
    "stuck bytes",
    "bytes to read at most",
]

DO = {
    "elect": "elect broker {}, which has every snapshot",
    "treat": "treat broker {}, then let it lead",
    "verify": "verify: every replica has snapshots in doubt",
    "wait": "wait for retention: no rebuild gets everything up",
}


def take_fleet(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``fleet``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument(sink.name_of(head), head.schema, head.program)
    _take(members_of(head.path, STREAMED, STREAMED), document, sink, head.path)


def fleet_page(body: Mapping[str, object], name: str, program: str) -> PageData:
    """The page of a merge that was just made.

    Args:
        body: the members of its document.
        name: what the page calls it.
        program: version of the program.
    """
    sink = PageSink("Fleet")
    _take(_members(body), PageDocument(name, "snaprebuild.fleet/1", program), sink, name)
    sink.page.link_findings()
    return sink.page


def _members(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if name in STREAMED:
            yield from ((name, each) for each in value)
        else:
            yield name, value


def _take(members: Iterable[tuple[str, Any]], document: PageDocument, sink: PageSink, path: str) -> None:
    document.lacks += LACKS
    number = sink.add_document(document)
    cluster, treat, steps, assumes = "the cluster", "", list[list[str]](), list[str]()
    for name, value in members:
        with checked(path, name):
            if name == "cluster_id" and value is not None:
                cluster = f"cluster {text_of(value)}"
                document.facts.append(("cluster", text_of(value)))
            elif name == "totals":
                told = ", ".join(f"{whole(many)} {outcome}" for outcome, many in value["outcomes"].items() if many)
                document.facts.append(("partitions", told or "none"))
            elif name == "treat":
                treat = _treat_text(value)
            elif name == "assumes":
                assumes.append(text_of(value))
            elif name == "steps":
                steps.append(_step_row(len(steps) + 1, value))
            elif name == "partitions":
                topic_partition = f"{text_of(value['topic'])}-{whole(value['partition'])}"
                topic_id = optional(text_of, value["topic_id"])
                place = cluster if topic_id is None else f"{cluster}, topic id {topic_id}"
                _take_partition(value, sink.partition(topic_partition, place, number))
            elif name == "run":
                document.take_run(value)
            elif name == "unread_paths":
                document.unread = [text_of(each) for each in is_of(list, value)]
            elif name == "findings":
                sink.take_finding(value)
    document.facts += [("assumed", each) for each in assumes]
    sink.page.tables.append(("Restarts, one after the other", treat, STEPS, steps))


def _treat_text(value: Any) -> str:
    brokers = ", ".join(str(whole(each)) for each in is_of(list, value["brokers"]))
    if not brokers:
        return "No broker has to be treated."
    proof = "no smaller set holds a replica of each partition that no election frees"
    if not is_of(bool, value["is_smallest"]):
        proof = f"a greedy choice; at least {whole(value['brokers_at_least'])} are needed"
    return f"Treat {brokers}: {proof}. Each stops when the one before is in sync again, so that no partition loses two replicas at once."


def _step_row(number: int, value: Any) -> list[str]:
    seconds = value["seconds"]
    if not isinstance(seconds, int | float | None):
        raise UnexpectedValueError("expected seconds, found another value")
    do = "stop, rebuild, start" if is_of(bool, value["needs_rebuild"]) else "stop, start"
    return [
        str(number),
        str(whole(value["node_id"])),
        f"{do} (controller)" if is_of(bool, value["is_controller"]) else do,
        *(str(whole(value[name])) for name in ("partitions", "missing", "replay_bytes")),
        "not known: no rate was stated" if seconds is None else f"{seconds / 60:.1f}",
        str(whole(value["freed_bytes"])),
    ]


def _take_partition(value: Any, partition: PagePartition) -> None:
    partition.stuck_bytes = whole(value["stuck_bytes"])
    outcome, elect = text_of(value["outcome"]), optional(whole, value["elect"])
    partition.outcome = outcome
    partition.facts.append(("to do", DO.get(outcome, outcome).format("none" if elect is None else elect)))
    for name in ("condition", "leader"):
        if value[name] is not None:
            partition.facts.append((name, str(value[name])))
    if value["not_scanned"]:
        partition.facts.append(("not scanned", ", ".join(str(whole(each)) for each in is_of(list, value["not_scanned"]))))
    rows = [
        [
            str(whole(each["node_id"])),
            text_of(each["state"]),
            str(whole(each["log_start_offset"])),
            str(optional(whole, each["log_end_offset"]) or f"at least {whole(each['log_end_at_least'])}"),
            str(optional(whole, each["leader_epoch"])),
            *(str(whole(each[name])) for name in ("missing", "doubted", "blocked_segments", "stuck_bytes", "replay_bytes")),
        ]
        for each in is_of(list, value["replicas"])
    ]
    partition.tables.append(("Replicas", REPLICAS, rows))
