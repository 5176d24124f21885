"""Writes the schemas of Kafka's messages that this project reads, in a form of its own, from the JSON in Kafka's published jars.

What a codec does not need (the prose above all) is left out. They are those of the newest release in the catalogue, which has every
version that an older release writes: ``different_layouts`` shows where it has not. ``scripts/kafka/release_catalogue.py`` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka_classpath import CATALOGUED, kafka_classpath
from release_facts import messages_of

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "formats" / "schemas"

SETS = {
    "remote-log-metadata": ("kafka-storage", r"Remote\w+Record"),
    "cluster-metadata": ("kafka-metadata", r"\w+Record"),
    "control-records": ("kafka-clients", r"LeaderChangeMessage|Snapshot(Header|Footer)Record|KRaftVersionRecord|VotersRecord"),
    "quorum-state": ("kafka-raft", r"QuorumStateData"),
    "transaction-state": ("kafka-transaction-coordinator", r"TransactionLog(Key|Value)"),
    "group-coordinator": ("kafka-group-coordinator", r"\w+(Key|Value)"),
    "share-coordinator": ("kafka-share-coordinator", r"\w+(Key|Value)"),
    "consumer-protocol": ("kafka-clients", r"ConsumerProtocol(Subscription|Assignment)"),
    "replication-messages": ("kafka-clients", r"(AlterPartition|Fetch)(Request|Response)"),
}
"""File of schemas: the jar that its messages are in, and their names."""

LICENCE = "Apache License, Version 2.0: see NOTICE in this directory"
MESSAGE_KEYS = ("name", "apiKey", "validVersions", "flexibleVersions")
FIELD_KEYS = ("name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "flexibleVersions", "default", "ignorable")


def compact_field(field: dict[str, object], structs: dict[str, list[dict[str, object]]]) -> dict[str, object]:
    """One field without prose; structures that several fields share are written out at each of them."""
    members = {key: field[key] for key in FIELD_KEYS if key in field and field[key] is not False}
    element = str(field["type"]).removeprefix("[]")
    fields = field.get("fields") or structs.get(element)
    if fields:
        assert isinstance(fields, list)
        members["fields"] = [compact_field(each, structs) for each in fields]
    return members


def compact_message(message: dict[str, Any]) -> dict[str, object]:
    """One message, as it is in a jar."""
    structs = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", [])}
    members: dict[str, object] = {key: message[key] for key in MESSAGE_KEYS if key in message}
    return {**members, "fields": [compact_field(field, structs) for field in message["fields"]]}


def lines_of(field: dict[str, object], indent: str) -> Iterator[str]:
    """A field on a line; its own fields on lines below."""
    plain = {key: value for key, value in field.items() if key != "fields"}
    text = json.dumps(plain)
    if "fields" not in field:
        yield indent + text
        return
    yield indent + text[:-1] + ', "fields": ['
    yield from joined(field["fields"], indent + " ")  # type: ignore[arg-type]
    yield indent + "]}"


def joined(fields: list[dict[str, object]], indent: str) -> Iterator[str]:
    """Several, with commas between them."""
    for number, field in enumerate(fields):
        *lines, last = lines_of(field, indent)
        yield from lines
        yield last + ("," if number + 1 < len(fields) else "")


def texts() -> dict[Path, str]:
    """The files, from the jars of the newest release in the catalogue."""
    jars = kafka_classpath(CATALOGUED[-1])
    return {SCHEMAS / f"{kind}.json": _text_of(kind, jars) for kind in SETS}


def bundled_messages(kind: str, classpath: str) -> list[dict[str, Any]]:
    """The messages of one file of schemas, as a release has them.

    Args:
        kind: of ``SETS``.
        classpath: of the release.
    """
    module, names = SETS[kind]
    jars = ":".join(jar for jar in classpath.split(":") if Path(jar).name.startswith(f"{module}-"))
    messages = [message for name, message in messages_of(jars).items() if re.fullmatch(names, name)]
    return sorted(messages, key=lambda message: (message.get("apiKey", 0), message["name"]))


def _text_of(kind: str, classpath: str) -> str:
    messages = [compact_message(message) for message in bundled_messages(kind, classpath)]
    head = {"source": f"Apache Kafka {CATALOGUED[-1]}, {SETS[kind][0]}", "licence": LICENCE}
    lines = [json.dumps(head)[:-1] + ', "messages": [', *joined(messages, " "), "]}"]
    return "\n".join(lines) + "\n"


def different_layouts(older: str, newer: str) -> Iterator[str]:
    """Versions of records that two releases lay out differently, or that the newer one cannot read. Tagged fields may be added.

    Args:
        older: class path of a release.
        newer: class path of a later one.
    """
    for kind in SETS:
        if kind == "replication-messages":
            # Requests are on no disk: newer releases drop their old versions.
            continue
        newer_messages = {message["name"]: message for message in bundled_messages(kind, newer)}
        for message in bundled_messages(kind, older):
            name = message["name"]
            lowest, _, highest = message["validVersions"].partition("-")
            for version in range(int(lowest), int(highest or lowest) + 1):
                fields = _layout(compact_message(message), version)
                if name not in newer_messages or fields != _layout_in(newer_messages[name], version):
                    yield f"{name} version {version}"


def _layout_in(message: dict[str, Any], version: int) -> list[Any]:
    """The layout of a version in a release. Up to 4.0 a coordinator's record had the version of its key as its type."""
    return _layout(compact_message(message), 0 if message["type"] == "coordinator-key" else version)


def _layout(message: dict[str, Any], version: int) -> list[Any]:
    """Type, nullability and inner fields of each field that is not tagged, which has a fixed place in a version."""
    layout = []
    for field in message["fields"]:
        is_there = _has(field.get("versions", field.get("taggedVersions")), version)
        is_tagged = _has(field.get("taggedVersions", "none"), version)
        if is_there and not is_tagged:
            inner = _layout(field, version) if "fields" in field else None
            layout.append((field["type"], _has(field.get("nullableVersions", "none"), version), inner))
    return layout


def _has(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    lowest, _, highest = versions.removesuffix("+").partition("-")
    return int(lowest) <= version and (versions.endswith("+") or version <= int(highest or lowest))
