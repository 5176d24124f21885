"""Output for people fits 100 columns, and 80 in a terminal of 80, whatever the names. Commands are lines to copy, and stay
whole."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from command import Run, snaprebuild
from every_verb import VERBS, filled, words_of, written
from log_dirs import batch, make_log_dir, write_partition
from sentences import MORE_ROWS

from snaprebuild.cli import printing
from snaprebuild.cli.render import metadata

COMMANDS = ("Next: ", "Undo: ", "  kafka-transactions.sh ", "  # kafka-transactions.sh ")
CHECKPOINT_LINE = re.compile(r" [a-z-]+-checkpoint: \S+ [0-9]+ [0-9]+")
"""A line that the operator merges into a file."""

AS_KAFKA_PRINTS = "inspect dump"
"""Its lines are those of kafka-dump-log, which tests compare."""

TOPIC = "t" * 249
WIDTHS = (100, 80)
FIRST, COUNT = 10_001, 25
"""Partition numbers of five digits: with the topic the longest name that a file system takes."""


def in_widths(verbs: Iterable[str]) -> list[object]:
    """Each verb in each width; in the quick tier in one of them, by turns."""
    of_quick = [(verb, WIDTHS[number % 2]) for number, verb in enumerate(verbs)]
    others = [(verb, width) for verb, used in of_quick for width in WIDTHS if width != used]
    return [*of_quick, *(pytest.param(*each, marks=pytest.mark.full) for each in others)]


def set_width(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Limits the lines of stdout, in each module that asks for the width."""
    for module in (printing, metadata):
        monkeypatch.setattr(module, "line_width", lambda: width)


def check_widths(ran: Run, width: int) -> None:
    for line in ran.stdout.splitlines():
        if not line.startswith(COMMANDS) and CHECKPOINT_LINE.fullmatch(line) is None:
            assert len(line) <= width, f"{len(line)} columns: {line}"


@pytest.mark.parametrize(("verb", "width"), in_widths(verb for verb in VERBS if words_of(verb) != AS_KAFKA_PRINTS))
def test_every_verb(verb: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_width(monkeypatch, width)
    written(VERBS[verb], tmp_path)
    ran = snaprebuild(*filled(VERBS[verb].arguments, tmp_path))
    assert ran.stdout
    check_widths(ran, width)


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a path of 120 characters and many partitions of the topic with the longest name."""
    root = tmp_path_factory.mktemp("long")
    root /= "d" * max(1, 119 - len(str(root)))
    logs = make_log_dir(root)
    data = {0: batch(0, producer_id=7), 1: batch(1, producer_id=7, attributes=0x10), 2: batch(2, producer_id=8)}
    for number in range(FIRST, FIRST + COUNT):
        write_partition(logs / f"{TOPIC}-{number}", data)
    return logs


LONG = {
    "scan": (),
    "plan": (),
    "rebuild": ("--dry-run",),
    "verify": (),
    "before-start": ("--dry-run",),
    "cluster source": (),
    "inspect stats": ("--top", "25"),
    "inspect explain": ("--producer-id", "7"),
    "inspect transactions": ("--as-of", "2200-01-01"),
    "follower offsets": (),
    "follower fetch-path": ("--offset", "1"),
}


@pytest.mark.parametrize(("verb", "width"), in_widths(LONG))
def test_long_names(verb: str, width: int, long_names: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_width(monkeypatch, width)
    ran = snaprebuild(*verb.split(), str(long_names), *LONG[verb])
    check_widths(ran, width)
    numbers = set(re.findall(r"(?m)^ .*?t-([0-9]+) ", ran.stdout))
    known = {str(number) for number in range(FIRST, FIRST + COUNT)}
    assert len(numbers) >= 10, "rows are shown"
    assert numbers <= known, "the number of a partition is never cut"
    if verb != "inspect stats":  # --top asks for this many rows
        assert re.search(rf"(?m)^and [0-9]+ {MORE_ROWS}$", ran.stdout)


@pytest.mark.parametrize("width", [100, 80])
def test_long_names_in_a_receipt(width: int, long_names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_width(monkeypatch, width)
    receipt = str(tmp_path / "receipt.jsonl")
    ran = [snaprebuild("rebuild", str(long_names), "--out", str(tmp_path / "out"), "--boundaries", "all", "--receipt", receipt)]
    ran += [
        snaprebuild(*words) for words in (["verify", "--written-by", receipt], ["undo", receipt, "--dry-run"], ["undo", receipt])
    ]
    for each in ran:
        check_widths(each, width)
        assert f"t-{FIRST} " in each.stdout


@pytest.mark.parametrize("width", [100, 80])
def test_long_names_in_a_fleet_and_a_report(width: int, long_names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_width(monkeypatch, width)
    scan = tmp_path / "scan.json"
    snaprebuild("scan", str(long_names), "--save-json", str(scan))
    document = json.loads(scan.read_text())
    document["log_dirs"][0]["node_id"] = 1
    scan.write_text(json.dumps(document))
    for words in (["fleet", str(scan)], ["report", str(scan), "--html", str(tmp_path / "page.html")]):
        ran = snaprebuild(*words)
        assert ran.stdout
        check_widths(ran, width)
