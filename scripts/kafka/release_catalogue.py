#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: python
"""Writes the catalogue of Kafka's releases, compares it with their classes, and looks for newer releases.

Without an option it writes ``formats/schemas``: settings with types and defaults, feature levels, versions of files and messages, and
the message schemas that this project reads by. Java and Maven are needed; the jars come from the registry of this machine's Maven.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import message_schemas
from kafka_classpath import CATALOGUED, KafkaUnavailableError, served_versions, unlisted_classpath
from release_facts import CATALOGUED_RELEASES, Facts, facts_of, minor_of

ROOT = Path(__file__).resolve().parents[2]

SCHEMAS = ROOT / "formats" / "schemas"
SETTINGS_FILE = SCHEMAS / "kafka-settings.json"
RELEASES_FILE = SCHEMAS / "kafka-releases.json"
UNAVAILABLE = 3

Histories = dict[str, dict[str, list[list[Any]]]]
"""By section and key what was true since which release: the release, then the value as in ``Facts``.

An entry with the release alone: it and later ones do not have the key any more.
"""


def merged(facts: Mapping[str, Facts]) -> Histories:
    """One catalogue of the facts of several releases, the oldest first."""
    histories: Histories = {}
    sections = sorted({section for each in facts.values() for section in each})
    for section in sections:
        keys = sorted({key for each in facts.values() for key in each.get(section, {})}, key=_numbers_first)
        histories[section] = {key: _history(key, section, facts) for key in keys}
    return histories


def _numbers_first(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdigit() else (sys.maxsize, key)


def _history(key: str, section: str, facts: Mapping[str, Facts]) -> list[list[Any]]:
    history: list[list[Any]] = []
    before: list[Any] | None = None
    for release, each in facts.items():
        value = each.get(section, {}).get(key)
        if value != before:
            history.append([release, *(value or [])])
        before = value
    return history


def facts_in(histories: Histories, release: str) -> Facts:
    """The part of a catalogue about one release: the inverse of ``merged``."""
    facts: Facts = {}
    for section, keys in histories.items():
        for key, history in keys.items():
            states = [state for state in history if _number(state[0]) <= _number(release)]
            if states and len(states[-1]) > 1:
                facts.setdefault(section, {})[key] = states[-1][1:]
    return facts


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def committed() -> Histories:
    """The catalogue as it is."""
    return {**json.loads(SETTINGS_FILE.read_text())["settings"], **json.loads(RELEASES_FILE.read_text())["facts"]}


def texts_of(histories: Histories) -> dict[Path, str]:
    """The files of a catalogue: a key on a line, so that a new release changes few of them."""
    settings = {section: keys for section, keys in histories.items() if section.startswith("settings/")}
    others = {section: keys for section, keys in histories.items() if section not in settings}
    head = {
        "source": f"Apache Kafka {CATALOGUED[0]} to {CATALOGUED[-1]}",
        "licence": message_schemas.LICENCE,
        "releases": CATALOGUED_RELEASES,
    }
    return {SETTINGS_FILE: _text(head, "settings", settings), RELEASES_FILE: _text(head, "facts", others)}


def _text(head: dict[str, Any], member: str, histories: Histories) -> str:
    sections = [
        f"  {json.dumps(section)}: {{\n"
        + ",\n".join(f"   {json.dumps(key)}: {json.dumps(history)}" for key, history in keys.items())
        + "\n  }"
        for section, keys in histories.items()
    ]
    members = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    members.append(f" {json.dumps(member)}: {{\n" + ",\n".join(sections) + "\n }")
    return "{\n" + ",\n".join(members) + "\n}\n"


def changes(before: Facts, after: Facts) -> Iterator[str]:
    """Lists the differences of a later release, one line for each key."""
    for section in sorted(before.keys() | after.keys()):
        old = before.get(section, {})
        new = after.get(section, {})
        describe = _DESCRIBED.get(section.partition("/")[0], _described)
        for key in sorted(old.keys() | new.keys(), key=_numbers_first):
            if key not in old:
                yield f"{section} {key}: new, {describe(new[key])}"
            elif key not in new:
                yield f"{section} {key}: removed"
            elif old[key] != new[key]:
                yield f"{section} {key}: {describe(old[key])}; now {describe(new[key])}"


def _described(value: list[Any]) -> str:
    return ", ".join(map(str, value))


def _described_setting(value: list[Any]) -> str:
    kind, *default = value
    return f"{kind}, default {json.dumps(default[0])}" if default else f"{kind}, must be set"


def _described_feature(value: list[Any]) -> str:
    lowest, stable, highest = value
    return f"levels {lowest} to {stable}" + (f", {highest} under development" if highest > stable else "")


def _described_message(value: list[Any]) -> str:
    versions, *tags = value
    tagged = [f"{name} ({tag})" for each in tags for name, tag in each.items()]
    return f"versions {versions}" + (f", tagged fields {', '.join(tagged)}" if tagged else "")


_DESCRIBED = {"settings": _described_setting, "features": _described_feature, "messages": _described_message}


def newer_versions(served: Iterable[str], catalogued: Iterable[str]) -> list[str]:
    """Releases that are served and newer than the one in the catalogue: of its own line of patches, or a later release.

    Args:
        served: every version that a registry has.
        catalogued: one version for each release.
    """
    last = {minor_of(version): _number(version) for version in catalogued}
    oldest = min(last.values())
    releases = [version for version in served if re.fullmatch(r"\d+\.\d+\.\d+", version) and _number(version) > oldest]
    return sorted((version for version in releases if _number(version) > last.get(minor_of(version), ())), key=_number)


def report_newer(until: str | None) -> int:
    """Prints what releases that are served know and the catalogue does not.

    Args:
        until: last version to take from the catalogue; None for all.

    Returns:
        Exit code: 1 if there is a newer release.
    """
    catalogued = [version for version in CATALOGUED if until is None or _number(version) <= _number(until)]
    if not catalogued:
        sys.exit(f"--until {until}: the catalogue begins with {CATALOGUED[0]}")
    histories = committed()
    with tempfile.TemporaryDirectory() as place:
        newer = newer_versions(served_versions(Path(place)), catalogued)
        if not newer:
            print(f"The registry serves no release of Kafka that is newer than the catalogue ({catalogued[-1]}).")
            return 0
        print(f"The registry serves releases of Kafka that are newer than the catalogue: {', '.join(newer)}")
        for version in newer:
            before = max((each for each in catalogued if _number(each) < _number(version)), key=_number)
            print(f"\nKafka {version}, compared with {before}")
            try:
                facts = facts_of(version, unlisted_classpath(version, Path(place)))
            except KafkaUnavailableError as error:
                print(f"  its broker cannot be had yet: {error}")
                continue
            lines = list(changes(facts_in(histories, minor_of(before)), facts))
            for line in lines:
                print(f"  {line}")
            print(f"  {len(lines)} changes")
    print(
        "\nAdd them to CATALOGUED in tests/broker/kafka_classpath.py, list their jars (scripts/kafka/classpath --record VERSION),"
    )
    print("and run scripts/kafka/release_catalogue.py.")
    return 1


def check(releases: list[str]) -> int:
    """Compares the catalogue with the classes of some releases. Returns an exit code."""
    histories = committed()
    exit_code = 0
    for release in releases:
        lines = list(changes(facts_in(histories, release), facts_of(CATALOGUED_RELEASES[release])))
        print(f"Kafka {CATALOGUED_RELEASES[release]}: {'as in the catalogue' if not lines else 'differs from the catalogue'}")
        for line in lines:
            exit_code = 1
            print(f"  {line}")
    return exit_code


def write() -> None:
    """All files, from the jars of all releases."""
    facts = {}
    for release, version in CATALOGUED_RELEASES.items():
        print(f"Kafka {version}", flush=True)
        facts[release] = facts_of(version)
    for path, text in {**texts_of(merged(facts)), **message_schemas.texts()}.items():
        path.write_text(text)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="scripts/kafka/release_catalogue.py", description=__doc__.partition("\n")[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", nargs="*", metavar="X.Y", help="compare with the classes of these releases (default: all)")
    action.add_argument(
        "--newer", action="store_true", help="exit 1 if the registry serves a newer release, and print what changed"
    )
    parser.add_argument("--until", metavar="X.Y.Z", help="with --newer: as if the catalogue ended with this version")
    options = parser.parse_args()
    if options.until and not options.newer:
        parser.error("--until goes with --newer")
    unknown = sorted(set(options.check or ()) - set(CATALOGUED_RELEASES))
    if unknown:
        parser.error(f"not in the catalogue: {', '.join(unknown)}")
    try:
        if options.newer:
            return report_newer(options.until)
        if options.check is not None:
            return check(options.check or list(CATALOGUED_RELEASES))
        write()
    except KafkaUnavailableError as error:
        print(f"scripts/kafka/release_catalogue.py: {error}", file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
