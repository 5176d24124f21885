"""The first line, the JSON document, the metrics and the page of a command have the numbers of one status: over all states and forms."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES
from other_process import live_broker
from pages import data_of
from refused_reads import refused
from start_states import STATES, StartState
from start_states.expected import read_table, server_properties
from start_states.forms import FORMS

SAMPLE = ("log-end-lost-clean", "recovery-points-garbage", "snapshots-unparsable-all", "stray-of-an-earlier-start")
SAMPLE_FORMS = ("JBOD", "killed")
VERBS = ("scan", "verify")

BY_KAFKA = read_table()
LOSES_START = ("exits", "halts")

BY_IMAGE = ("future-next-to-partition",)
"""The metadata image of Kafka's test names the directory of the partition. No metadata log is among these files: a move under way."""

BY_BATCHES = (
    *("plain-write-in-transaction-clean", "plain-write-in-transaction-killed"),
    *("plain-write-after-transaction-of-snapshot-clean", "plain-write-after-transaction-of-snapshot-killed"),
    *("offsets-out-of-order-index-missing", "offsets-out-of-order-transaction-index-bad"),
)
"""Only the batches of rolled segments show why the start ends. ``verify`` reads them, ``scan`` does not."""

HEALTHY = {"fine", "unknown"}
"""Tones of partitions on a page without a finding; that of snapshots that nothing proves is unknown."""

NUMBERS = {
    "wrong": r"(\d+) (?:snapshots? )?(?:is |are )?(?:proven )?wrong",
    "suspect": r"(\d+) (?:snapshots? )?(?:is |are )?suspect",
    "missing": r"(\d+) (?:snapshots? )?(?:is |are )?missing",
    "waiting": r"(?:at least )?(\d+)(?: segments?)? waiting|waiting: at least (\d+)",
    "unread": r"(\d+) (?:more )?(?:unread|paths? could not|paths? damaged|damaged)",
}
"""How the first lines write each count. A line that is short of columns writes thousands with a unit; no state has a thousand."""


def metrics_of(path: Path) -> dict[str, dict[str, int]]:
    """The sums of each metric by the last of its labels but the file."""
    sums: dict[str, dict[str, int]] = {}
    for name, labels, value in re.findall(r"^(snaprebuild_\w+)\{(.*)\} (\S+)$", path.read_text(), re.MULTILINE):
        label = re.findall(r'(\w+)="([^"]*)"', labels)[-2][1]
        by_label = sums.setdefault(name, {})
        by_label[label] = by_label.get(label, 0) + int(float(value))
    return sums


def written_counts(answer: str) -> dict[str, int]:
    """The counts in the words of an answer."""
    found = {}
    for name, pattern in NUMBERS.items():
        numbers = [int(next(filter(None, each.groups()))) for each in re.finditer(pattern, answer)]
        found[name] = numbers[0] if numbers else 0
    return found


def check(verb: str, words: tuple[object, ...], place: Path) -> Run:
    """Runs a command with its metrics, makes the page, and compares all numbers. The run."""
    measured, saved = place / f"{verb}.prom", place / f"{verb}.json"
    run = in_json(verb, *words, "--metrics", measured)
    saved.write_text(run.stdout)
    counts, answer = run.document["counts"], run.document["answer"]
    assert len(answer.splitlines()[0]) <= 100

    written = written_counts(answer)
    assert written == {name: counts[name] for name in written}, answer

    metrics = metrics_of(measured)
    assert metrics["snaprebuild_status"] == counts
    assert metrics["snaprebuild_last_run_exit_code"] == {verb: run.exit_code}
    assert metrics["snaprebuild_unread_paths"] == {verb: counts["unread"]}
    _check_metrics(verb, metrics, counts)

    made = in_json("report", saved, "--html", place / f"{verb}.html").document
    totals = made["totals"]
    assert (made["page_answer"], made["page_exit_code"]) == (answer, run.exit_code)
    assert made["page_next_command"] == run.document["next_command"]
    assert {name: totals[f"{name}_snapshots"] or 0 for name in ("wrong", "suspect", "missing")} == {
        name: counts[name] for name in ("wrong", "suspect", "missing")
    }
    assert totals["fates"] == counts["fates"] + counts["topics_without_id"]
    _check_page(data_of(place / f"{verb}.html"), run)
    return run


def _check_metrics(verb: str, metrics: dict[str, dict[str, int]], counts: dict[str, int]) -> None:
    """The metrics that were there before, with the same numbers. Without a log directory or a partition they have no series."""
    if verb == "scan":
        snapshots = metrics.get("snaprebuild_scan_snapshots", {})
        found = tuple(snapshots.get(state, 0) for state in ("corrupt", "suspect", "missing"))
    else:
        by_name = [sum(metrics.get(f"snaprebuild_verify_{name}_snapshots", {}).values()) for name in ("wrong", "missing")]
        found = (by_name[0], counts["suspect"], by_name[1])
    assert found == (counts["wrong"], counts["suspect"], counts["missing"])


def _check_page(page: dict[str, Any], run: Run) -> None:
    """The first lines, and no partition with a finding is shown as healthy."""
    first = page["status"]
    assert f"{first['sentence']}\n{first['details']}".rstrip() == run.document["answer"]
    assert (first["next_command"], first["exit_code"]) == (run.document["next_command"], run.exit_code)
    counted = sum(count for name, count in run.document.get("counts", {}).items() if not name.startswith("waiting"))
    assert (first["tone"] == "fine") == (run.exit_code == 0 and not counted)
    serious = [each["path"] for each in run.document["findings"] if each["severity"] != "note"]
    for partition in page["partitions"]:
        place = partition["place"]
        if any(path == place or path.startswith(f"{place}/") or place.startswith(f"{path}/") for path in serious):
            assert partition["tone"] not in HEALTHY, partition["topic_partition"]


def check_exit_code(run: Run) -> None:
    """It is that of what the line counts: nothing is counted at exit code 0, and what is counted has one."""
    counts = run.document["counts"]
    causes = (
        "fates",
        "topics_without_id",
        "wrong",
        "suspect",
        "unread",
        *(["missing"] if "scan" in run.document["schema"] else []),
    )
    assert run.exit_code != 0 or not any(counts[name] for name in causes)
    line = run.document["answer"].splitlines()[0]
    says_why = any(counts[name] for name in (*causes, "missing")) or re.search(r"findings?: |cannot be uploaded", line)
    assert run.exit_code == 0 or says_why, line


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "state", [pytest.param(each, id=each.name, marks=() if each.name in SAMPLE else pytest.mark.full) for each in STATES]
)
def test_of_a_state(state: StartState, verb: str, tmp_path: Path) -> None:
    """Where Kafka's ``LogManager`` ends the start, the line begins with that, and the exit code is 4."""
    base = tmp_path / "node"
    base.mkdir()
    state.build(base)
    properties, release = server_properties(base, state), "3.9.2" if state.zookeeper else "4.3.1"
    words = ("--server-properties", properties, "--kafka-release", release)
    if not any((base / name).is_dir() for name in state.log_dirs):
        assert snaprebuild(verb, *words).exit_code != 0, "there is no document"
        return
    run = check(verb, words, tmp_path)
    check_exit_code(run)
    fate = BY_KAFKA[release].get(state.name)
    unseen = BY_IMAGE if verb == "verify" else (*BY_IMAGE, *BY_BATCHES)
    if fate is not None and fate["broker"] in LOSES_START and state.name not in unseen:
        assert run.document["counts"]["fates"] > 0
        assert run.exit_code in (4, 5), "5 if a log directory cannot be read by this program either"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SAMPLE_FORMS else pytest.mark.full) for name in FORMS])
def test_of_a_healthy_form(name: str, verb: str, tmp_path: Path) -> None:
    """Nothing but what waits is counted, on the page every partition is healthy, and the table begins with the same line."""
    form, base = FORMS[name], tmp_path / "node"
    base.mkdir()
    properties = form.made(base)
    words = ("--server-properties", properties, "--kafka-release", form.release)
    with live_broker(base / form.log_dirs[0]) if form.is_live else contextlib.nullcontext():
        run = check(verb, words, tmp_path)
        table = snaprebuild(verb, *words)
    check_exit_code(run)
    assert run.exit_code == 0
    assert not any(count for what, count in run.document["counts"].items() if not what.startswith("waiting"))
    assert table.stdout.splitlines()[0] == run.document["answer"].splitlines()[0]
    assert {each["tone"] for each in data_of(tmp_path / f"{verb}.html")["partitions"]} <= HEALTHY


def test_one_kind_hides_no_other(tmp_path: Path) -> None:
    """Missing, wrong, suspect and unread at once: each is counted in each place."""
    logs = copy_of("kafka27-mixed", tmp_path)
    suspect = FIXTURES / "damaged" / "false-empty"
    unread = logs / "deleted-0" / "leader-epoch-checkpoint"
    unread.unlink()
    unread.symlink_to(unread.name)
    wrong = min((logs / "plain-0").glob("*.snapshot"))
    wrong.write_bytes(wrong.read_bytes()[:-1])
    scanned = check("scan", (logs, suspect), tmp_path).document["counts"]
    assert (scanned["wrong"], scanned["suspect"], scanned["missing"], scanned["unread"]) == (1, 1, 14, 1)
    verified = check("verify", (logs, suspect, "--as-of", "1795266500000"), tmp_path).document["counts"]
    assert (verified["wrong"], verified["missing"], verified["unread"]) == (2, 14, 1), "verify proves what scan suspects"


def test_a_transaction_index_that_cannot_be_read(tmp_path: Path) -> None:
    """Its contents may end the start."""
    node = Path(shutil.copytree(FIXTURES / "follower-lost-state" / "node2", tmp_path / "node"))
    with refused(max((node / "payments-0").glob("*.txnindex")), errno.EACCES, []):
        run = check("scan", (node,), tmp_path)
    assert run.document["counts"]["unread"] == 1


OTHERS: dict[str, tuple[object, ...]] = {
    "fleet": (),
    "tier audit": (FIXTURES / "damaged" / "zero-bytes-copy", "--as-of", "1795266500000"),
    "inspect transactions": (FIXTURES / "kafka27-mixed", "--as-of", "1795266500000"),
}


@pytest.mark.parametrize("verb", OTHERS)
def test_of_the_other_documents(verb: str, tmp_path: Path) -> None:
    """The page begins with what the table begins with, and has its exit code."""
    scan = tmp_path / "scan.json"
    scan.write_text(snaprebuild("scan", FIXTURES / "kafka27-mixed" / "logs", "--output", "json").stdout)
    words = OTHERS[verb] or (scan,)
    saved, run = tmp_path / "other.json", in_json(verb, *words)
    saved.write_text(run.stdout)
    answer = run.document["answer"]
    printed = " ".join(snaprebuild(verb, *words).stdout.split())
    assert printed.startswith(" ".join(answer.split()))
    made = in_json("report", saved, "--html", tmp_path / "page.html").document
    assert (made["page_answer"], made["page_exit_code"], run.exit_code) == (answer, 1, 1)
    if verb != "inspect transactions":
        counts = run.document["counts"]
        assert (made["totals"]["wrong_snapshots"] or 0) == counts["wrong"]
        assert (counts["wrong"], counts["missing"]) == ((1, 0) if verb == "tier audit" else (0, 14))
    _check_page(data_of(tmp_path / "page.html"), run)


def test_of_a_receipt(tmp_path: Path) -> None:
    """A run that did not end is a finding. The next command shows its files as they are now."""
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    snaprebuild("rebuild", logs, "--out", tmp_path / "out", "--receipt", receipt, "--as-of", "1795266500000")
    made = in_json("report", receipt, "--html", tmp_path / "page.html").document
    assert made["page_answer"].startswith("14 snapshots written to a directory of their own; the run was completed.")
    assert made["page_next_command"] == f"snaprebuild verify --written-by {receipt}"
    assert made["page_exit_code"] == 0
    lines = receipt.read_text().splitlines(keepends=True)
    killed = tmp_path / "killed.jsonl"
    killed.write_text("".join(lines[:-1]))
    assert in_json("report", killed, "--html", tmp_path / "page.html").document["page_exit_code"] == 1


def test_several_documents(tmp_path: Path) -> None:
    """The page begins with the worst document; what both of two documents show is counted once."""
    state = next(each for each in STATES if each.name == "log-end-lost-clean")
    state.build(tmp_path)
    properties = server_properties(tmp_path, state)
    documents = []
    for verb in VERBS:
        documents.append(tmp_path / f"{verb}.json")
        documents[-1].write_text(in_json(verb, "--server-properties", properties).stdout)
    made = in_json("report", *documents, "--html", tmp_path / "page.html").document
    scanned = json.loads(documents[0].read_text())
    assert made["page_answer"] == scanned["answer"]
    assert made["totals"]["fates"] == scanned["counts"]["fates"] == 1
    assert made["page_exit_code"] == 4
