"""Kafka's treatment of each directory that a rule calls broken (docs/reference/cluster-rules.md). Our grades follow from it."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_classpath import java_output
from log_dirs import batch_positions, cut, flip
from manifests import REPOSITORY
from metadata_dirs import BROKEN, checkpoint_name, metadata_copy, remove

from snaprebuild.cluster.quorum.check import check_quorum
from snaprebuild.cluster.quorum.facts import read_node
from snaprebuild.cluster.quorum.rules import NameEffect, effect_of_name
from snaprebuild.cluster.rule_result import Grade, RuleState

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Case:
    """A directory, what we say of it, and what Kafka does.

    Attributes:
        make: it.
        rule: that it violates.
        grade: of ours.
        does: see ``what_kafka_does``.
        part: what in Kafka's answer shows it.
        answer: what that is.
        end_offset: of the log before it was broken, where that cannot be read from it.
    """

    make: Callable[[Path], list[Path]]
    rule: str
    grade: Grade
    does: str
    part: str
    answer: str
    end_offset: int | None = None


def made(name: str, change: Callable[[Path], object]) -> Callable[[Path], list[Path]]:
    def make(to: Path) -> list[Path]:
        directory = metadata_copy(name, to)
        change(directory)
        return [directory]

    return make


def renamed(name: str, old: tuple[int, int], new: tuple[int, int], *without: str) -> Callable[[Path], list[Path]]:
    def change(directory: Path) -> None:
        (directory / checkpoint_name(*old)).rename(directory / checkpoint_name(*new))
        for each in without:
            (directory / each).unlink()

    return made(name, change)


def without_its_last_batches(directory: Path) -> None:
    path = directory / checkpoint_name(484, 3)
    path.write_bytes(path.read_bytes()[: batch_positions(path)[-2]])


def one_epoch_back(directory: Path) -> None:
    """An empty log after its only checkpoint."""
    remove(directory, checkpoint_name(315, 4))
    (directory / f"{234:020d}.log").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n3 234\n")


CASES = {
    "K1": Case(BROKEN["K1"], "K1", Grade.DAMAGE, "refuses", "load", "throws IllegalStateException"),
    "K2": Case(BROKEN["K2"], "K2", Grade.WARNING, "continues", "start", "538"),
    "K3": Case(BROKEN["K3"], "K3", Grade.WARNING, "mends", "epochs", "['0', '1', '4 234']"),
    "K3 of an empty log": Case(made("node2", one_epoch_back), "K3", Grade.WARNING, "mends", "raft", "reads to 234 epoch 4"),
    "K4": Case(BROKEN["K4"], "K4", Grade.INFO, "continues", "cleaner", "stays at 234"),
    "K5": Case(BROKEN["K5"], "K5", Grade.WARNING, "mends", "end", "484"),
    "K6": Case(BROKEN["K6"], "K6", Grade.ERROR, "fails later", "235-4", "throws UnexpectedAppendOffsetException"),
    "K6 of the latest": Case(
        renamed("node1", (234, 4), (235, 4), checkpoint_name(315, 4)),
        *("K6", Grade.ERROR, "fails later", "listener", "reads to 348, skips 0, takes again 1"),
    ),
    "K7": Case(BROKEN["K7"], "K7", Grade.ERROR, "fails later", "353-1", "throws IllegalArgumentException"),
    "K7 of a later epoch": Case(renamed("kraft-metadata", (484, 3), (484, 4)), "K7", Grade.DAMAGE, "loses", "end", "484"),
    "K8": Case(BROKEN["K8"], "K8", Grade.DAMAGE, "refuses", "raft", "throws CorruptRecordException"),
    "K8 without its end": Case(
        made("kraft-metadata", without_its_last_batches),
        "K8",
        Grade.DAMAGE,
        "loses",
        "listener",
        "reads to 531, skips 0, takes again 0, throws on records",
    ),
    "K8 of an old one": Case(
        made("kraft-metadata", lambda directory: flip(directory / checkpoint_name(332, 2), 1000)),
        *("K8", Grade.ERROR, "fails later", "332-2", "throws CorruptRecordException"),
    ),
    "K8 of an old one's header": Case(
        made("kraft-metadata", lambda directory: flip(directory / checkpoint_name(0, 0), 70)),
        *("K8", Grade.DAMAGE, "refuses", "cleaner_by_age", "throws CorruptRecordException"),
    ),
    "K9": Case(BROKEN["K9"], "K9", Grade.INFO, "mends", "load", "loads"),
    "K10": Case(BROKEN["K10"], "K10", Grade.DAMAGE, "refuses", "load", "throws StringIndexOutOfBoundsException"),
    "K11": Case(
        BROKEN["K11"], "K11", Grade.DAMAGE, "loses", "listener", "reads to 531, skips 186, takes again 0, throws on records"
    ),
    "K11 below the latest": Case(
        made("kraft-metadata", lambda directory: remove(directory, f"{171:020d}.*")),
        *("K11", Grade.ERROR, "fails later", "157-1", "takes up to 531, skips 186"),
    ),
    "K11 of a damaged batch": Case(
        made("kraft-metadata", lambda directory: flip(directory / f"{0:020d}.log", 3000)),
        *("K11", Grade.DAMAGE, "loses", "end", "484"),
    ),
    "K11 of a damaged batch near the end": Case(
        made("kraft-metadata", lambda directory: flip(path := directory / f"{357:020d}.log", path.stat().st_size - 300)),
        *("K11", Grade.DAMAGE, "loses", "end", "491"),
        end_offset=531,
    ),
    "K11 of a segment that was cut": Case(
        made("kraft-metadata", lambda directory: cut(directory / f"{171:020d}.log", 3000)),
        *("K11", Grade.DAMAGE, "loses", "end", "484"),
    ),
    "K12": Case(BROKEN["K12"], "K12", Grade.WARNING, "continues", "raft", "reads to 531 epoch 3"),
    "K12 that is none": Case(
        made("kraft-metadata", lambda directory: (directory / f"{171:020d}.snapshot").write_bytes(b"junk")),
        *("K12", Grade.WARNING, "continues", "raft", "reads to 531 epoch 3"),
    ),
    "K13": Case(BROKEN["K13"], "K13", Grade.ERROR, "continues", "listener", "reads to 348, skips 0, takes again 0"),
    "K14": Case(BROKEN["K14"], "K14", Grade.ERROR, "continues", "listener", "reads to 348, skips 0, takes again 0"),
    "K15": Case(BROKEN["K15"], "K15", Grade.ERROR, "continues", "raft", "reads to 348 epoch 4"),
    "K16": Case(BROKEN["K16"], "K16", Grade.ERROR, "continues", "listener", "reads to 348, skips 0, takes again 0"),
}
"""Names are those of the table in docs/reference/cluster-rules.md."""

OURS = {"K13", "K14", "K15", "K16"}
"""Kafka never compares nodes, nor a checkpoint or a vote with the log, and each serves what it has: the grade is ours."""

NAMES = {
    NameEffect.REFUSED: [
        *("464-3.checkpoint", "x.log", ".log", "a.checkpoint.part", "a.checkpoint.deleted", "x.snapshot", "x.index", "x.timeindex"),
        *("x.swap", "x.txnindex", "x.cleaned", "00000000000000000464.checkpoint", "00000000000000000464-000000000x.checkpoint"),
        *("99999999999999999999.log", "000000000000000004640000000003-3.checkpoint", "00000000000000000464-9999999999.checkpoint"),
        "1-2.snapshot",
    ],
    NameEffect.CLEANER_FAILS: [
        *("00000000000000000464-0000000003x.checkpoint", "00000000000000000464_0000000003.checkpoint"),
        *("+0000000000000000464-+000000003.checkpoint",),
    ],
    NameEffect.TAKEN_FOR_SEGMENT: ["12.log", "+12.log"],
    NameEffect.REMOVED: [
        *("12.index", "12.timeindex", "12.txnindex", "12.snapshot", "x.log.deleted", "12.cleaned"),
        *("00000000000000000464_0000000003-x.checkpoint.part", "00000000000000000464_0000000003.checkpoint.deleted"),
    ],
    NameEffect.NONE: ["foo.checkpointx", "notes.txt", "12.logs", "x.checkpoint.bak"],
}


def kafka_answers(asked: list[tuple[Path, str]]) -> list[dict[str, Any]]:
    """All in one process: directories, and the checkpoints of which a follower is tried."""
    lines = [f"{directory}\t{checkpoints}" for directory, checkpoints in asked]
    reported = java_output("Json", "LoadedMetadataLog", "MetadataLogStart", lines=lines)
    answers = [json.loads(line[2:]) for line in reported if line.startswith("= ")]
    assert len(answers) == len(asked)
    return answers


def what_kafka_does(answer: dict[str, Any], end_offset: int, files: set[str], epochs: str | None) -> str:
    """The worst of it, in a word.

    Args:
        answer: of the process.
        end_offset: of the log before.
        files: names before.
        epochs: ``leader-epoch-checkpoint`` before.
    """
    if any(answer.get(step, "").startswith("throws Corrupt") for step in ("raft", "cleaner_by_age")) or answer["load"] != "loads":
        return "refuses"
    if answer["end"] < end_offset or not re.search(r"skips 0, takes again \d+$", answer["listener"]):
        return "loses"
    followers = [each["follower"] for each in answer["checkpoints"].values()]
    is_well = all(re.fullmatch(r"takes up to \d+, skips 0|loads .*", each) for each in followers)
    is_well = is_well and answer["listener"].endswith("takes again 0")
    if not is_well or any(answer[cleaner].startswith("throws") for cleaner in ("cleaner", "cleaner_by_age")):
        return "fails later"
    # Of producer snapshots each start removes what it does not need.
    gone = {name for name in files - set(answer["files"]) if not re.fullmatch(r"[0-9]{20}\.snapshot", name)}
    is_changed = gone or (epochs is not None and answer["epochs"] != epochs.splitlines())
    return "mends" if is_changed else "continues"


def part_of(answer: dict[str, Any], part: str) -> str:
    """A step, or what becomes of a follower with a checkpoint of this id."""
    return str(answer[part] if part in answer else answer["checkpoints"][part]["follower"])


def violations(directories: list[Path]) -> set[tuple[str, Grade | None]]:
    check = check_quorum([str(each) for each in directories])
    return {(each.rule.name, each.grade) for node in check.nodes for each in node.results if each.state is RuleState.BROKEN}


def documented() -> dict[str, tuple[str, str]]:
    """Our grade and Kafka's word by the name of a case."""
    text = (REPOSITORY / "docs" / "reference" / "cluster-rules.md").read_text()
    rows = re.findall(
        r"^\| (K\d+[^|]*) \| (info|warning|error|damage) \| (refuses|loses|fails later|mends|continues): ", text, re.MULTILINE
    )
    return {name.strip(): (grade, does) for name, grade, does in rows}


def test_what_kafka_does_with_what_the_rules_find(tmp_path: Path) -> None:
    """Grades: damage where it refuses or loses, error where it fails later, and less where it mends or continues."""
    directories = {name: case.make(tmp_path / f"case{number}") for number, (name, case) in enumerate(CASES.items())}
    healthy = {name: [metadata_copy(name, tmp_path / "healthy")] for name in ("kraft-metadata", "kraft-metadata-moved", "node2")}
    named = {
        (effect, name): [metadata_copy("node3", tmp_path / f"name{number}")]
        for number, (effect, name) in enumerate((effect, name) for effect, names in NAMES.items() for name in names)
    }
    for (_, name), (directory,) in named.items():
        (directory / name).write_bytes(b"")
    found = {name: violations(each) for name, each in directories.items()}
    everything = [each[-1] for group in (directories, healthy, named) for each in group.values()]
    followers = [case.part if "-" in case.part else "" for case in CASES.values()] + ["all"] * len(healthy) + [""] * len(named)
    before = []
    for each in everything:
        epochs = (each / "leader-epoch-checkpoint").read_text()
        before.append((read_node(str(each)).facts.end_offset, {path.name for path in each.iterdir()}, epochs))
    for number, case in enumerate(CASES.values()):
        end_offset, *rest = before[number]
        before[number] = (case.end_offset or end_offset, *rest)
    answers = kafka_answers(list(zip(everything, followers, strict=True)))
    does = [what_kafka_does(answer, *known) for answer, known in zip(answers, before, strict=True)]
    wrong = []
    for (name, case), answer, word in zip(CASES.items(), answers, does, strict=False):
        # An emptied log has lost its end as well, which the files next to it show.
        others = {("K4", Grade.INFO), ("K17", Grade.ERROR)} if name == "K3 of an empty log" else {("K4", Grade.INFO)}
        if found[name] - others != {(case.rule, case.grade)} - others:
            wrong.append((name, found[name]))
        if (word, part_of(answer, case.part)) != (case.does, case.answer):
            wrong.append((name, word, answer))
        grades = {"refuses": {Grade.DAMAGE}, "loses": {Grade.DAMAGE}, "fails later": {Grade.ERROR}}
        assert name in OURS or case.grade in grades.get(case.does, {Grade.INFO, Grade.WARNING}), name
    words = {NameEffect.REFUSED: "refuses", NameEffect.CLEANER_FAILS: "fails later", NameEffect.TAKEN_FOR_SEGMENT: "loses"}
    words |= {NameEffect.REMOVED: "mends", NameEffect.NONE: "continues"}
    for (effect, name), word in zip(named, does[len(CASES) + len(healthy) :], strict=True):
        if word != words[effect] or effect_of_name(name) is not effect:
            wrong.append((name, word, effect_of_name(name)))
    assert not wrong, "\n".join(map(str, wrong))
    assert set(does[len(CASES) : len(CASES) + len(healthy)]) == {"continues"}


def test_the_table_in_the_documentation_is_this_one() -> None:
    # A lost end needs no Kafka to be seen; real nodes meet the other three in test_metadata_identity.py.
    elsewhere = {"K17", "K18", "K19", "K20"}
    of_the_log = {name: outcome for name, outcome in documented().items() if name not in elsewhere}
    assert of_the_log == {name: (case.grade.value, case.does) for name, case in CASES.items()}
    assert {case.rule for case in CASES.values()} == set(BROKEN) - elsewhere
