"""Every verb that reads, over every directory that real brokers left in health and that it applies to: what it says that is wrong."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command import snaprebuild
from every_verb import AS_OF, LONG_AGO, ONE_JOB
from healthy_directories import (
    LOGS,
    PLUGIN,
    REMOTE,
    copies_of,
    files,
    lacks_snapshots,
    manifest_of,
    partitions_of,
    topic_partitions,
)
from manifests import FIXTURES

KEY = ("--set", f"private_key={FIXTURES / 'aiven-layout' / 'keys' / 'key1.private.pem'}")
METADATA = "__cluster_metadata-0"
EVERY_RECORD = ("--isolation", "read_uncommitted", "--limit", "1000000")


@dataclass(frozen=True)
class Pair:
    """A verb over a directory.

    Attributes:
        verb: its name, as in `every_verb.VERBS`.
        directory: below the fixtures.
        arguments: of the run.
        names: what the result has to name: a verb that does not run on them does not pass for one that found nothing.
        makes: runs before it, each of which has to end with exit code 0 or 1.
        others: directories next to it of which files are read, too.
        is_copied: the run is over a copy of the directory, ``{}/logs``.
    """

    verb: str
    directory: str
    arguments: tuple[str, ...]
    names: tuple[str, ...] = ()
    makes: tuple[tuple[str, ...], ...] = ()
    others: tuple[str, ...] = ()
    is_copied: bool = False


def of_logs() -> Iterator[Pair]:
    """Verbs that take log directories."""
    for directory in LOGS:
        path, names = str(FIXTURES / directory), tuple(topic_partitions(directory))
        for verb, options in (
            ("scan", ()),
            ("plan", AS_OF),
            ("plan", (*AS_OF, "--boundaries", "all")),
            ("verify", (*AS_OF, *ONE_JOB)),
            ("rebuild", (*AS_OF, *ONE_JOB, "--dry-run")),
            ("inspect stats", (*AS_OF, *ONE_JOB)),
            ("inspect transactions", (*AS_OF, *ONE_JOB)),
            ("inspect records", ("--internal-topics", "--limit", "1000000")),
            ("follower offsets", ONE_JOB),
        ):
            yield Pair(verb, directory, (*verb.split(), path, *options), names)
        if names != (METADATA,):  # which is no one's source
            yield Pair("cluster source", directory, ("cluster", "source", path, *ONE_JOB), names)
        yield Pair("inspect dump", directory, ("inspect", "dump", *map(str, files(directory)), "--deep"))
        for producer_id, partition in _producers(directory):
            words = ("inspect", "explain", path, "--producer-id", str(producer_id), *AS_OF, *ONE_JOB)
            yield Pair("inspect explain", directory, words, (partition,))
        scan = ("scan", path, "--save-json", "{}/scan.json")
        yield Pair("fleet", directory, ("fleet", "{}/scan.json"), (), (scan,))
        words = ("tier", "upload", "{}", path, *LONG_AGO, "--uploader", "me", "--i-am-the-leader", "--dry-run")
        yield Pair("tier upload", directory, words)
        yield Pair("stage", directory, ("stage", path, *AS_OF, *ONE_JOB, "--to", "{}/staged"))
        if not is_due(directory):
            continue  # nothing is staged, so that there is nothing to install
        staged = ("stage", "{}/logs", *AS_OF, *ONE_JOB, "--to", "{}/staged")
        words = ("install", "--plan", "{}/staged/plan.jsonl", "--dry-run", *ONE_JOB)
        yield Pair("install", directory, words, (), (staged,), is_copied=True)


def is_due(directory: str) -> bool:
    """A broker of 2.7 left segments without a snapshot that Kafka would upload."""
    reported = {
        name: each for name, each in partitions_of(directory).items() if "compacted" not in name and not name.startswith("__")
    }
    return manifest_of(directory)["kafka_version"] == "2.7.2" and any(map(lacks_snapshots, reported.values()))


def of_metadata() -> Iterator[Pair]:
    """Verbs that take metadata logs."""
    nodes = [directory for directory in LOGS if METADATA in topic_partitions(directory)]
    for directory in nodes:
        path = str(FIXTURES / directory)
        for words in (("cluster", "isr"), ("cluster", "check"), ("cluster", "image")):
            yield Pair(" ".join(words), directory, (*words, path))
        yield Pair("cluster advise", directory, ("cluster", "advise", path, *LONG_AGO))
        topics = {name.rpartition("-")[0] for name in topic_partitions(directory)} - {"__cluster_metadata"} or {"meta-1"}
        yield Pair("cluster history", directory, ("cluster", "history", path, "--topic", min(topics)), (min(topics),))
        scan = ("scan", path, "--save-json", "{}/scan.json")
        yield Pair("fleet", directory, ("fleet", "{}/scan.json", "--metadata", path), (), (scan,))


def of_stores() -> Iterator[Pair]:
    """Verbs that take remote storage."""
    for directory, (store, metadata) in REMOTE.items():
        path, words = str(FIXTURES / directory), (str(FIXTURES / store), "--metadata-log", str(FIXTURES / metadata))
        for verb in ("follower offsets", "follower fetch-path", "follower plan"):
            yield Pair(
                verb, directory, (*verb.split(), words[0], path, *words[1:], *(() if verb == "follower fetch-path" else ONE_JOB))
            )
        yield Pair("follower check", directory, ("follower", "check", words[0], path, *words[1:], *AS_OF, *ONE_JOB))
        yield Pair("follower repair", directory, ("follower", "repair", words[0], path, *words[1:], *AS_OF, *ONE_JOB, "--dry-run"))
        yield Pair("inspect records", directory, ("inspect", "records", words[0], path, *words[1:], *EVERY_RECORD))
        yield Pair("inspect records", store, ("inspect", "records", *words, *EVERY_RECORD), others=(metadata,))
        yield Pair("tier inventory", store, ("tier", "inventory", *words), others=(metadata,))
        yield Pair("tier metadata", store, ("tier", "metadata", *words, "--log-dir", path), others=(metadata,))
        audit = ("tier", "audit", *words, *AS_OF, *ONE_JOB)
        yield Pair("tier audit", store, audit)
        yield Pair("tier audit", store, (*audit, "--ledger", "{}/ledger"), (), ((*audit, "--ledger", "{}/ledger"),))
        yield Pair("tier repair", store, ("tier", "repair", *words, *LONG_AGO, *ONE_JOB, "--dry-run"))
        by_audit = ("tier", "repair", *words, "--audit", "{}/audit.json", *ONE_JOB, "--dry-run")
        yield Pair("tier repair", store, by_audit, (), ((*audit, "--save-json", "{}/audit.json"),))
        topic = manifest_of(store).get("partition", "mixed-0")
        build = ("follower", "build", str(FIXTURES / store), "{}", "--topic-partition", topic, *AS_OF, *ONE_JOB, "--dry-run")
        yield Pair("follower build", store, build)
    for store in PLUGIN:
        words = (str(FIXTURES / store), *(KEY if "encrypted" in store else ()))
        yield Pair("inspect records", store, ("inspect", "records", *words, *_topic_ids(store), *EVERY_RECORD))
        yield Pair("tier inventory", store, ("tier", "inventory", words[0]))
        yield Pair("tier metadata", store, ("tier", "metadata", words[0], "--custom-metadata", "none"))
        yield Pair("tier audit", store, ("tier", "audit", *words, *LONG_AGO, *ONE_JOB))
        yield Pair("tier repair", store, ("tier", "repair", *words, *LONG_AGO, *ONE_JOB, "--dry-run"))


def _topic_ids(store: str) -> Iterator[str]:
    """Options with an id of each topic of which the store has several."""
    ids: dict[str, set[str]] = {}
    for each in copies_of(store):
        ids.setdefault(each["topic"], set()).add(each["topic_id"])
    for topic, found in ids.items():
        if len(found) > 1:
            yield from ("--topic-id", f"{topic}={min(found)}")


def _producers(directory: str) -> Iterator[tuple[int, str]]:
    """One that the manifest knows, and a partition with it."""
    for partition, reported in sorted(partitions_of(directory).items()):
        if not reported.get("plain_name", True):
            continue
        entries = reported.get("log_end_entries") or (
            reported["segments"][-1].get("entries") if isinstance(reported["segments"][-1], dict) else ()
        )
        for entry in entries or ():
            yield entry["producer_id"], partition
            return


def pairs() -> list[Pair]:
    return [*of_logs(), *of_metadata(), *of_stores()]


# ---------------------------------------------------------------------------------------------------------------- a run

_opened: list[set[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened and event == "open" and isinstance(arguments[0], str | bytes):
        _opened[0].add(os.path.basename(os.fsdecode(arguments[0])))


sys.addaudithook(_audit)


@contextmanager
def opened() -> Iterator[set[str]]:
    """Names of the files that are opened."""
    names: set[str] = set()
    _opened.append(names)
    try:
        yield names
    finally:
        _opened.clear()


@dataclass(frozen=True)
class Result:
    """Exit code, findings and output of a run.

    Attributes:
        code: its exit code.
        findings: all but notes.
        output: stdout, whole.
        read: names of files of the directory that it, or what was made before, opened.
        error: that ended it.
    """

    code: int
    findings: tuple[dict[str, Any], ...]
    output: str
    read: frozenset[str]
    error: str


def run_of(pair: Pair, place: Path) -> Result:
    """Runs the pair; ``place`` is for what it makes."""
    if pair.is_copied:
        shutil.copytree(FIXTURES / pair.directory, place / "logs")
    with opened() as names:
        for each in pair.makes:
            made = snaprebuild(*_at(place, each))
            assert made.exit_code in (0, 1), (pair, made)
        ran = snaprebuild(*_at(place, pair.arguments), "--output", "json")
    is_lines = pair.verb == "inspect dump"
    documents = [json.loads(each) for each in (ran.stdout.splitlines() if is_lines else [ran.stdout] if ran.stdout else [])]
    findings = documents if is_lines else [each for document in documents for each in document["findings"]]
    wrong = tuple(each for each in findings if each.get("severity", "note") != "note")
    own = {each.name for directory in (pair.directory, *pair.others) for each in files(directory)}
    return Result(ran.exit_code, wrong, ran.stdout, frozenset(names & own), ran.error)


def _at(place: Path, words: tuple[str, ...]) -> list[str]:
    return [each.replace("{}", str(place)) for each in words]
