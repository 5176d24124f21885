"""Results of Kafka's own ``LogManager`` for each state of ``start_states``: asked of a release, and as a table that is committed.

As a command it makes the table again: ``python start_fates.py [RELEASE ...] [STATE ...]``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support")]  # as a command: pytest has it already

from kafka_classpath import LOADED, java_program  # noqa: E402
from start_states import STATES, StartState  # noqa: E402
from start_states.expected import TABLE, Fate, read_table, write_table  # noqa: E402

BATCH_SECONDS = 400.0
UNIQUE = re.compile(r"\.[0-9a-f]{32}-")
LOGGED = re.compile(r"\[.*?\] (WARN|ERROR) ")
UNTOLD = re.compile(r"Failed atomic move|CheckpointFileWithFailureHandler|There was an error in one of the threads")
"""Lines that are not compared: those of a thread that writes leader epochs while the directory is renamed, in one run of several,
and repetitions of the exception."""
LONG_AGO = 1_000_000_000
"""Modification time of the snapshots before a start."""
LONGEST_LINE, MOST_LINES = 200, 2
FIRST_WITH_DIRECTORY_IDS = "3.7.0"
SUFFIXES = ("-stray", "-delete")
"""Suffixes of directories that are not those of a log of the manager: 3.7.0 and 4.4 set strays aside and forget them."""
POOLS = {
    "-stray": "stray",
    "-delete": "deleted",
    "currentLogs": "loaded",
    "futureLogs": "future",
    "strayLogs": "stray",
    "logsToBeDeleted": "deleted",
}


def applies(state: StartState, release: str) -> bool:
    """Whether the release can have such a cluster."""
    if state.zookeeper and release.startswith("4."):
        return False
    return not (state.topic_settings and release.startswith("2."))  # remote storage is newer


def fates(
    release: str,
    states: Sequence[StartState],
    base: Path,
    change: Callable[[StartState, Path], None] | None = None,
) -> dict[str, Fate]:
    """The fate of each state that the release can have, by the name of the state.

    Args:
        release: of Kafka.
        states: to start.
        base: all directories are made below it.
        change: is called with each state and its directory before the start; None to start the states as they are.
    """
    asked = [state for state in states if applies(state, release)]
    lines = []
    for state in asked:
        root = base / state.name
        root.mkdir()
        state.build(root)
        if release < FIRST_WITH_DIRECTORY_IDS:
            _remove_directory_ids(root)
        if change is not None:
            change(state, root)
        lines.append(json.dumps(_request(state, root)))
    for path in base.rglob("*.snapshot"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    command = java_program("StartFates", version=release)
    command = [option for option in command if "defaultLogLevel" not in option]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=BATCH_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked), done.stderr[-3000:]
    return {state.name: _fate(answer, base / state.name) for state, answer in zip(asked, answers, strict=True)}


def _remove_directory_ids(root: Path) -> None:
    """Directories of releases that do not write ``directory.id``: 2.8 refuses two directories with different ids."""
    for path in filter(Path.is_file, root.glob("*/meta.properties")):
        kept = [line for line in path.read_text().splitlines(keepends=True) if not line.startswith("directory.id=")]
        path.write_text("".join(kept))


def _request(state: StartState, root: Path) -> dict[str, Any]:
    topics = []
    for name, (topic_id, replicas, directory) in state.topics.items():
        partition = {"partition": 0, "replicas": replicas, "directories": [directory] * len(replicas)}
        topics.append({"name": name, "id": topic_id, "partitions": [partition]})
    return {
        "dirs": [str(root / name) for name in state.log_dirs],
        "kraft": not state.zookeeper,
        "keeps_topic_ids": state.keeps_topic_ids,
        "settings": state.settings_in(root),
        "topic_settings": dict(state.topic_settings),
        "topics": topics,
    }


def _fate(answer: Mapping[str, Any], root: Path) -> Fate:
    def plain(text: str) -> str:
        return UNIQUE.sub(".*-", text.replace(f"{root}/", "").replace(str(root), "."))

    fate: Fate = {"broker": answer["broker"]}
    if "exception" in answer:
        kind, _, message = plain(answer["exception"]).partition(": ")
        fate["exception"] = kind
        if "log" in answer:
            fate["message"] = message.splitlines()[0][:LONGEST_LINE]
    if answer["offline"]:
        fate["offline"] = sorted(map(plain, answer["offline"]))
    read_later = [*answer["high_watermarks"].items(), *answer["cleaner_offsets"].items()]
    unread = {plain(name) for name, value in read_later if isinstance(value, str)}
    if unread:
        fate["offline_when_first_read"] = sorted(unread)
    if answer.get("strays_to_delete"):
        fate["strays_to_delete"] = answer["strays_to_delete"]
    if answer["broker"] == "starts":
        known = {path: {"pool": suffix} for path in answer["files"] for suffix in SUFFIXES if path.endswith(suffix)}
        loaded = {path: row for path, row in answer["partitions"].items() if not _is_one_of_two_strays(path, known)}
        rows = {path: _partition(row, answer["files"].get(path, []), Path(path)) for path, row in (known | loaded).items()}
        fate["partitions"] = {plain(path): rows[path] for path in sorted(rows)}
    if "second" in answer:
        fate["second_start"] = _fate(answer["second"], root)
    lines = [_log_line(plain(line)) for line in answer.get("log", ()) if LOGGED.match(line) and not UNTOLD.search(line)]
    if lines:
        fate["log"] = sorted(set(lines))[:MOST_LINES]
    return fate


def _is_one_of_two_strays(path: str, known: Mapping[str, object]) -> bool:
    """The manager keeps one stray of each partition: that of the thread which came last."""
    name = Path(path).name.partition(".")[0]
    same = [each for each in known if each.endswith("-stray") and Path(each).name.partition(".")[0] == name]
    return path in same and len(same) > 1


def _partition(partition: Mapping[str, Any], files: Sequence[str], path: Path) -> dict[str, Any]:
    row = {"fate": POOLS[partition["pool"]]}
    facts = ("start", "end", "topic_id", "segments", "epochs")
    row |= {name: partition[name] for name in facts if partition.get(name) is not None}
    names = [name for name in files if re.fullmatch(r"\d{20}\.snapshot", name)]
    row["snapshots"] = [int(name[:20]) for name in names]
    row["written"] = [int(name[:20]) for name in names if (path / name).stat().st_mtime != LONG_AGO]
    row["keeps_id_file"] = "partition.metadata" in files
    return row


def _log_line(line: str) -> str:
    """Without the name of the thread."""
    return re.sub(r"^\[.*?\] (?=WARN|ERROR)", "", line)[:LONGEST_LINE]


def main(names: Sequence[str]) -> None:
    """Makes the rows of some releases, or states, again; without names all."""
    releases = [each for each in names if each in LOADED] or LOADED
    states = [state for state in STATES if state.name in names] or STATES
    table = read_table()
    for release in releases:
        with tempfile.TemporaryDirectory() as base:
            table.setdefault(release, {}).update(fates(release, states, Path(base).resolve()))
    write_table(table)
    sys.stdout.write(f"{TABLE.name}: {', '.join(table)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
