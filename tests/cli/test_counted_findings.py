"""The findings that an answer counts can be seen: the table shows them, or stderr does, and no answer points at an empty stderr."""

import os
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import copy_of
from manifests import bundled
from sentences import NONE_MISSING

from snaprebuild import scan

FIXTURES = ("kafka27-mixed", "kafka27-moved-start", "kafka27-killed", "kafka4-mixed", "magic0", "magic1", "magicup", "damaged")
NOTE = "note"


def test_a_finding_of_the_table_is_not_said_to_be_on_stderr(tmp_path: Path) -> None:
    """After a rebuild only segments without leader epochs are left, and the table has them."""
    logs = copy_of("magicup", tmp_path)
    assert snaprebuild("rebuild", logs).exit_code in (0, 1)
    run = snaprebuild("scan", logs)
    assert run.exit_code == 1
    assert run.text.startswith(f"{NONE_MISSING}1 partition. 1 finding: magicup-0. ")
    assert "stderr" not in run.text.partition(" Next: ")[0]
    assert "no leader epochs" in run.stdout


@pytest.mark.parametrize("verb", ["scan", "verify", "plan"])
@pytest.mark.parametrize("fixture", FIXTURES)
def test_each_finding_is_shown(fixture: str, verb: str) -> None:
    logs = bundled(fixture)
    document = in_json(verb, logs).document
    run = snaprebuild(verb, logs)
    for finding in document["findings"]:
        if finding["severity"] == NOTE:
            continue
        name = os.path.basename(finding["path"])
        is_in_table = name in run.stdout or os.path.basename(os.path.dirname(finding["path"])) in run.stdout
        assert f"({finding['code']})" in run.stderr or is_in_table, finding
    if "stderr" in run.stdout:
        assert run.stderr, run.stdout


@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_answer_of_a_result_names_its_findings(fixture: str) -> None:
    result = scan(bundled(fixture))
    assert "stderr" not in result.answer
    assert ("`findings`" in result.answer) == ("stderr" in in_json("scan", bundled(fixture)).document["answer"])
