"""No verb that reads says of a directory which a broker left in health that something is wrong, unless it is so by the manifest.

All verbs over all directories of all versions: `false_alarm_matrix.py` has the pairs, `healthy_directories.py` what is so, and why.
"""

from pathlib import Path

import pytest
from false_alarm_matrix import Pair, pairs, run_of
from healthy_directories import LOGS, NOT_HEALTHY, PLUGIN, REMOTE, TRUE, manifest_of
from log_dirs import tree
from manifests import FIXTURES, REPOSITORY

from snaprebuild.cli.main import verbs

NO_DIRECTORY = {
    "simulate isr": "a scenario",
    "simulate metadata-log": "a scenario",
    "before-start": "writes; it is rebuild in place, and starts a broker",
    "undo": "judges files that a receipt names",
    "report": "repeats the findings of others",
    "inspect diff": "compares two files that it is given",
}
VERSIONS = {"2.7.2", "3.9.2", "4.3.1"}
EXIT_CODE_OF = {"finding": 1, "refused": 3, "damaged": 4, "storage": 5}
WORST_FIRST = (5, 3, 4, 1)
PAIRS = pairs()


def test_no_verb_is_forgotten() -> None:
    assert {pair.verb for pair in PAIRS} | NO_DIRECTORY.keys() == verbs().keys()


def test_no_directory_is_forgotten() -> None:
    """Every directory below the fixtures with partitions in it is judged here, or the reason is listed."""
    with_partitions = {
        path.parent.parent.relative_to(FIXTURES).as_posix() for path in FIXTURES.rglob(f"*-[0-9]/{'[0-9]' * 20}.log")
    }
    judged = {*LOGS, *(remote for remote, _ in REMOTE.values()), *PLUGIN}
    missing = {each for each in with_partitions if not any(f"{each}/".startswith(f"{of}/") for of in (*judged, *NOT_HEALTHY))}
    assert not missing
    assert {manifest_of(directory)["kafka_version"] for directory in LOGS} == VERSIONS


def test_the_pairs_are_as_many_as_the_page_says() -> None:
    """A verb that no longer applies to a directory should not pass for one that finds nothing there."""
    page = (REPOSITORY / "docs" / "internals" / "testing.md").read_text()
    assert f"over nine stores: {len(PAIRS)} pairs." in page


@pytest.mark.full
@pytest.mark.parametrize("half", [0, 1])
def test_no_false_alarm(half: int, tmp_path: Path) -> None:
    """Half of the verbs; what is so has to be reported, too."""
    verbs = sorted({pair.verb for pair in PAIRS})[half::2]
    before = tree(FIXTURES)
    wrong, used = [], set()
    for number, pair in enumerate(pair for pair in PAIRS if pair.verb in verbs):
        place = tmp_path / str(number)
        place.mkdir()
        found, truths = judged(pair, place)
        wrong += found
        used |= truths
    assert not wrong, "\n".join(wrong)
    assert used == {of for of in TRUE if of[0] in verbs}
    assert tree(FIXTURES) == before


def judged(pair: Pair, place: Path) -> tuple[list[str], set[tuple[str, str]]]:
    """Wrong statements of a run, and the truths on which the others rest."""
    reported = run_of(pair, place)
    context = f"{' '.join(pair.arguments)}: exit code {reported.code} {reported.error}"
    wrong = [f"{context}: does not name {name}" for name in pair.names if name not in reported.output]
    if not reported.read:
        wrong.append(f"{context}: read nothing of the directory")
    truths = set()
    for each in reported.findings:
        of = (pair.verb, each["code"])
        if of in TRUE and TRUE[of].holds(pair.directory, each):
            truths.add(of)
        else:
            wrong.append(f"{context}: {each}")
    codes = {EXIT_CODE_OF[each["severity"]] for each in reported.findings}
    if reported.code != next((code for code in WORST_FIRST if code in codes), 0):
        wrong.append(f"{context}: findings of {codes or 'none'}")
    return wrong, truths
