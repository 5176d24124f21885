"""The `jq` filters of docs/reference/json.md answer their questions; the answers are counted here without jq."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import snaprebuild
from log_dirs import EMPTY_SNAPSHOT, copy_of, snapshot_name
from manifests import REPOSITORY

AS_OF = ("--as-of", "2026-11-21T12:00:00Z")
PAGE = (REPOSITORY / "docs" / "reference" / "json.md").read_text()
QUERIES = re.findall(r"(?m)^# ([a-z -]+): (.*)\njq (.*)$", PAGE)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One document of each command that is asked, of a copy in which one snapshot is wrong."""
    place = tmp_path_factory.mktemp("documents")
    logs = copy_of("kafka27-mixed", place)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(EMPTY_SNAPSHOT)
    for name, words in {
        "scan": ("scan", logs),
        "plan": ("plan", logs, *AS_OF),
        "rebuild": ("rebuild", logs, "--out", place / "out", *AS_OF),
        "verify": ("verify", logs, *AS_OF),
        "transactions": ("inspect", "transactions", logs, *AS_OF),
        "fleet": ("fleet", place / "scan.json"),
        "dump": ("inspect", "dump", logs / "mixed-0" / snapshot_name(7637)),
    }.items():
        (place / f"{name}.json").write_text(snaprebuild(*words, "--output", "json").stdout)
    return place


def answers(place: Path) -> dict[str, list[str]]:
    """By question."""

    def read(name: str) -> Any:
        return json.loads((place / f"{name}.json").read_text())

    scan, plan, rebuild, verify = (read(name) for name in ("scan", "plan", "rebuild", "verify"))
    items = [json.loads(line) for line in (place / "dump.json").read_text().splitlines()]
    boundaries = [each for partition in rebuild["partitions"] for each in partition["boundaries"]]
    opened = [each for partition in read("transactions")["partitions"] for each in partition["open"]]
    return {
        "How many snapshots are missing?": ["14"],
        "Which paths were not read? The result does not cover them.": [],
        "How many bytes of which partition cannot be uploaded?": [
            f"{each['topic_partition']} {each['upload']['stuck_bytes']}" for each in scan["partitions"] if each["totals"]["missing"]
        ],
        "What was found, except for notes?": [
            f"{each['code']} {each['path']}" for each in scan["findings"] if each["severity"] in ("finding", "damaged", "storage")
        ],
        "Which snapshots would be written, and of which class?": [
            f"{partition['topic_partition']} {offset} EXACT"
            for partition in plan["partitions"]
            for offset in partition["missing_offsets"]
        ],
        "How many snapshots were written, and how many were not?": [f"{len(boundaries)} 0"],
        "Which snapshots have a weaker class than EXACT?": [],
        "Which snapshots contradict the log?": [
            f"{partition['path']} 7045" for partition in verify["partitions"] if partition["topic_partition"] == "mixed-0"
        ],
        "Why is each late transaction open?": [f"{each['first_offset']} {each['reason']}" for each in opened if each["is_late"]],
        "What does each partition need?": [f"{each['topic_partition']} {each['outcome']}" for each in read("fleet")["partitions"]],
        "Which producers of a snapshot have an open transaction?": [
            str(each["producer_id"]) for each in items if each.get("current_txn_first_offset", -1) >= 0
        ],
    }


def test_every_query_answers_its_question(documents: Path) -> None:
    """Where jq is; everywhere, that each question is answered above."""
    expected = answers(documents)
    assert [question for _, question, _ in QUERIES] == list(expected)
    assert sum(bool(answer) for answer in expected.values()) >= 9
    jq = shutil.which("jq")
    if jq is None:
        return
    for _, question, line in QUERIES:
        done = subprocess.run([jq, *shlex.split(line)], cwd=documents, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, expected[question], ""), question
