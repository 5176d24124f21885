"""Settings, messages, feature levels and versions of files of one release of Kafka, read from its own jars.

``java/KafkaCatalogue.java`` prints what its classes say; the schemas of its messages are in its jars as JSON.
``scripts/kafka/release_catalogue.py`` makes the committed catalogue of these facts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka_classpath import CATALOGUED, JAVA_SECONDS, compiled_without_kafka, kafka_classpath

Facts = dict[str, dict[str, list[Any]]]
"""Values by section and key. Each value is a list that JSON can hold.

* ``settings/RESOURCE``, such as ``settings/topic``: name to type and default. No second element: it must be set.
* ``features``: name to lowest level, highest stable level, and highest level if those under development are on.
* ``levels/FEATURE``: level to Kafka's name of it.
* ``files``: kind of file to the version that the release writes.
* ``messages``: name to versions, and to the tagged fields if there are any (path to tag).
"""

PROGRAM = "KafkaCatalogue"
RPCS = ("AlterPartitionRequest", "AlterPartitionResponse", "FetchRequest", "FetchResponse")
"""Requests and responses that this project reads. Of all other messages those that are written to disks are of interest."""

ON_DISK = ("coordinator-key", "coordinator-value", "data", "metadata")
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_ESCAPED = re.compile(r"\\(.)")
_UNESCAPED = {"t": "\t", "n": "\n", "\\": "\\"}


def minor_of(version: str) -> str:
    """The release that a patch release is of: ``4.4`` for ``4.4.0``."""
    return ".".join(version.split(".")[:2])


CATALOGUED_RELEASES = {minor_of(version): version for version in CATALOGUED}
"""The patch release that is read for each release, oldest first."""


def facts_of(version: str, classpath: str | None = None) -> Facts:
    """Runs one process of Java.

    Args:
        version: of Kafka.
        classpath: of its broker; None for that of the tests.
    """
    jars = classpath or kafka_classpath(version)
    facts = _facts_in_classes(jars)
    facts["messages"] = {name: _shape(message) for name, message in sorted(messages_of(jars).items())}
    return facts


def messages_of(classpath: str) -> dict[str, dict[str, Any]]:
    """The messages of a release that are written to disks, and ``RPCS``, by name, as its jars have them."""
    found = {}
    for jar in classpath.split(os.pathsep):
        if f"{os.sep}org{os.sep}apache{os.sep}kafka{os.sep}" in jar and "-test" not in jar:
            for message in _messages_in(Path(jar)):
                found[message["name"]] = message
    return found


def _messages_in(jar: Path) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"(?:common/)?(?:message|metadata)/\w+\.json", name):
                # Kafka reads the first value and ignores the rest: one file of 2.8 has a bracket too many.
                message, _ = json.JSONDecoder().raw_decode(_COMMENT.sub("", archive.read(name).decode()).strip())
                if message["type"] in ON_DISK or message["name"] in RPCS:
                    yield message


def _shape(message: dict[str, Any]) -> list[Any]:
    structs = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", [])}
    tags = dict(_tags(message["fields"], structs, ""))
    versions = message["validVersions"]
    return [versions, tags] if tags else [versions]


def _tags(fields: list[dict[str, Any]], structs: dict[str, Any], path: str) -> Iterator[tuple[str, int]]:
    for field in fields:
        name = path + field["name"]
        if "tag" in field:
            yield name, field["tag"]
        inner = field.get("fields") or structs.get(str(field["type"]).removeprefix("[]"), [])
        yield from _tags(inner, structs, f"{name}.")


def _facts_in_classes(classpath: str) -> Facts:
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    command += ["-cp", f"{compiled_without_kafka(PROGRAM)}{os.pathsep}{classpath}", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    facts: Facts = {}
    for line in done.stdout.splitlines():
        kind, *words = line.split("\t")
        _ADD[kind](facts, [_text(word) for word in words])
    return facts


def _text(word: str) -> str | None:
    if word == "\\0":
        return None
    return _ESCAPED.sub(lambda match: _UNESCAPED[match[1]], word)


def _add_setting(facts: Facts, words: list[Any]) -> None:
    resource, name, kind, presence, default = words
    value = [kind.lower()] if presence == "required" else [kind.lower(), default]
    facts.setdefault(f"settings/{resource}", {})[name] = value


def _add_feature(facts: Facts, words: list[Any]) -> None:
    """Stable ranges are printed first. A feature without a stable level is in the unstable ones only."""
    name, stability, lowest, highest = words
    features = facts.setdefault("features", {})
    if stability == "stable":
        features[name] = [int(lowest), int(highest), int(highest)]
    else:
        known = features.setdefault(name, [int(lowest), 0, 0])
        known[2] = int(highest)


def _add_level(facts: Facts, words: list[Any]) -> None:
    feature, level, name = words
    if int(level) >= 0:
        facts.setdefault(f"levels/{feature}", {})[level] = [name]


def _add_file(facts: Facts, words: list[Any]) -> None:
    kind, version = words
    facts.setdefault("files", {})[kind] = [int(version)]


_ADD = {"setting": _add_setting, "feature": _add_feature, "level": _add_level, "file": _add_file}
