"""`Next: nothing to do.` is printed with exit code 0 only, and where nothing is unread or suspect: every verb, over trees with damage."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import snaprebuild
from edited_tree import Files, Odd, Place
from every_verb import VERBS, filled
from log_dirs import EMPTY_SNAPSHOT
from manifests import REPOSITORY
from sentences import CORRECTS_NOTHING

NOTHING = "Next: nothing to do."
IS_FINDING = re.compile(r"^(finding|refused|damaged|storage): ", re.MULTILINE)
ANSWERING = ("scan", "plan", "verify", "rebuild", "rebuild in place", "rebuild --plan", "stage", "install", "before-start", "fleet")
ANSWERING += ("undo", "verify --written-by", "tier audit", "tier audit (plugin)", "tier repair", "tier upload")
ANSWERING += ("follower check", "follower repair")
"""Verbs whose result begins with an answer and the next command."""
QUICK = ("verify",)
EACH_VERB = [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in ANSWERING]


def one_of_each_kind(place: Place) -> list[str]:
    """The first and the last file with each ending."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in place.names():
        kinds.setdefault((name.split("/")[0], os.path.splitext(name)[1] or os.path.basename(name)), []).append(name)
    return [name for names in kinds.values() for name in dict.fromkeys((names[0], names[-1]))]


def damaged(place: Place, name: str) -> Iterator[tuple[str, Files]]:
    """The trees in which one file has some damage."""
    whole = place.files[name]
    yield "is empty", {**place.files, name: b""}
    yield "is gone", {other: data for other, data in place.files.items() if other != name}
    yield "is cut", {**place.files, name: whole[: len(whole) // 2]}
    yield "has another byte", {**place.files, name: whole[:-1] + bytes((whole[-1] ^ 1,)) if whole else b"\1"}
    yield "is a pipe", {**place.files, name: Odd("pipe")}
    if name.endswith(".snapshot"):
        yield "is a false empty", {**place.files, name: EMPTY_SNAPSHOT}


def check(place: Place, files: Files, what: str) -> tuple[int, bool]:
    """Runs the verb; its exit code, and whether there is nothing to do."""
    with place.edited(files):
        ran = snaprebuild(*filled(place.verb.arguments, place.root))
    says_nothing = NOTHING in ran.text
    if says_nothing:
        assert ran.exit_code == 0, f"{what}: {ran}"
        assert not IS_FINDING.search(ran.stderr), f"{what}: {ran}"
        assert "INCOMPLETE" not in ran.stdout, f"{what}: {ran}"
    return ran.exit_code, says_nothing


@pytest.mark.parametrize("verb", EACH_VERB)
def test_damage_is_never_nothing_to_do(verb: str, tmp_path: Path) -> None:
    place = Place.made(VERBS[verb], tmp_path)
    codes = [
        check(place, files, f"{verb}: {name} {what}")[0] for name in one_of_each_kind(place) for what, files in damaged(place, name)
    ]
    assert any(codes), "no damage was met"
    assert check(place, place.files, "healthy")[0] == (1 if verb in DISEASED else 0)


DISEASED = ("follower check",)
"""Its tree is given with something to find."""


def test_healthy_directories_have_nothing_to_do(tmp_path: Path) -> None:
    """The other side of the table: the sentence is there where all is well."""
    found: dict[str, tuple[int, bool]] = {}
    for verb in ("verify", "tier audit"):
        above = tmp_path / verb
        above.mkdir()
        place = Place.made(VERBS[verb], above)
        found[verb] = check(place, place.files, verb)
    assert found == dict.fromkeys(found, (0, True))


def test_one_place_decides() -> None:
    """A second one would miss the next reason."""
    sources = (path.read_text() for path in (REPOSITORY / "snaprebuild").rglob("*.py"))
    assert sum(source.count(NOTHING) for source in sources) == 1


def test_a_file_of_the_result_that_cannot_be_written_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snaprebuild.cli.begin_verb.check_document", lambda *_, **__: None)  # it could, before the work
    place = Place.made(VERBS["verify"], tmp_path)
    ran = snaprebuild(*filled(place.verb.arguments, place.root), "--save-json", "/proc/report.json")
    assert ran.exit_code == 5
    assert f"Next: {CORRECTS_NOTHING}; see what stderr lists." in ran.text
