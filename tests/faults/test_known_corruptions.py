"""Every known corruption below fixtures/damaged/ is found by the right verb, under its own code; its control case has no such finding.

What is wrong, and what finds it, is in the table that `scripts/faults/make_corruptions.py` writes next to the directories it makes.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import GROUPS, Run, in_json, snaprebuild
from documents import check_lines
from log_dirs import tree
from make_corruptions import differences
from manifests import FIXTURES, REPOSITORY

DAMAGED = FIXTURES / "damaged"
CORRUPTIONS: dict[str, dict[str, Any]] = json.loads((DAMAGED / "corruptions.json").read_text())
OF_THE_ISSUE = {
    *("torn-tail", "flipped-bit", "false-empty", "zero-bytes", "stale", "stray", "wrong-offset", "foreign-topic"),
    *("missing-index", "epoch-regression", "hanging-transaction", "phantom-upload", "clock-in-the-future"),
    *("gap", "replaced-disk"),
}


def run_of(arguments: str, directory: Path) -> tuple[Run, list[dict[str, Any]]]:
    """The run and its findings."""
    words = [each.replace("{}", str(directory)) for each in arguments.split()]
    if words[:2] == ["inspect", "dump"]:
        run = snaprebuild(*words, "--output", "json")
        return run, [line for line in check_lines(run.stdout) if line["item"] == "finding"]
    verb = 2 if words[0] in GROUPS else 1
    run = in_json(" ".join(words[:verb]), *words[verb:])
    return run, run.document["findings"]


def each_run() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, corruption in CORRUPTIONS.items():
        for expected in corruption["findings"]:
            yield name, corruption["healthy"], expected


def test_what_is_committed_is_what_the_program_makes() -> None:
    assert differences(DAMAGED) == []


def test_the_required_corruptions_are_there() -> None:
    assert set(CORRUPTIONS) >= OF_THE_ISSUE
    directories = {path.name for path in DAMAGED.iterdir() if path.is_dir()} - {"logs", "healthy"}
    assert directories == set(CORRUPTIONS)


@pytest.mark.full
@pytest.mark.parametrize("kind", sorted({corruption["healthy"] for corruption in CORRUPTIONS.values()}))
def test_each_corruption_is_found_and_its_control_case_is_not_reported(kind: str) -> None:
    """All runs of the known corruptions that were made of one healthy directory; nothing is written anywhere."""
    before, runs, healthy = tree(DAMAGED), 0, {}
    for name, control, expected in each_run():
        if control != kind:
            continue
        run, findings = run_of(expected["arguments"], DAMAGED / name)
        context = f"{name}: {expected['arguments']}: {run.stdout[-2000:]} {run.stderr}"
        mine = [each for each in findings if each["code"] == expected["code"]]
        assert {each["severity"] for each in mine} == {expected["severity"]}, context
        assert {each["reason"] for each in mine} == {expected["reason"]}, context
        assert run.exit_code == expected["exit_code"], context
        if expected["arguments"] not in healthy:
            healthy[expected["arguments"]] = run_of(expected["arguments"], DAMAGED / control)
        run, findings = healthy[expected["arguments"]]
        context = f"healthy: {expected['arguments']}: {run.stdout[-2000:]} {run.stderr}"
        assert run.exit_code == 0, context
        assert {each["severity"] for each in findings} <= {"note"}, context
        assert expected["code"] not in {each["code"] for each in findings}, context
        runs += 1
    assert runs >= 1
    assert tree(DAMAGED) == before


def test_each_corruption_has_a_code_of_its_own_or_a_reason_of_it() -> None:
    """One code has several reasons where all of them need the same action; docs/reference/findings.md lists each."""
    first = Counter((corruption["findings"][0]["code"], corruption["findings"][0]["reason"]) for corruption in CORRUPTIONS.values())
    assert not {each for each, count in first.items() if count > 1}
    with_reasons = {expected["code"] for _, _, expected in each_run() if expected["reason"] is not None}
    assert with_reasons == {"wrong-snapshot", "suspect-snapshot", "source-rejected", "tier-wrong-snapshot"}
    page = (REPOSITORY / "docs" / "reference" / "findings.md").read_text()
    for _, _, expected in each_run():
        assert f"`{expected['code']}`" in page
        assert expected["reason"] is None or f"`{expected['reason']}`" in page
