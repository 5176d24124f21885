"""README.md and the pages of docs show what the commands really print, name every verb, and lead nowhere that is not there."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snaprebuild.cli.main import verbs

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "fixtures").rglob("*.md")),
]
REFERENCE = ROOT / "docs" / "reference"
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@functools.cache
def headings(page: Path) -> set[str]:
    """Anchors that a link may name after `#`, as GitHub makes them of headings."""
    found: set[str] = set()
    for title in re.findall(r"^#{1,6} (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        again = 1
        unique = anchor
        while unique in found:
            unique, again = f"{anchor}-{again}", again + 1
        found.add(unique)
    return found


@pytest.mark.full
def test_examples_are_real_output() -> None:
    command = [ROOT / "scripts" / "docs" / "build", "--check", "output"]
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1200)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_output_stands_unchecked() -> None:
    """After other commands than those that the check knows, such as `snaprebuild` alone, the page shows no output."""
    shown = 0
    for page in PAGES:
        for block in FENCED.finditer(page.read_text()):
            lines = [line.strip() for line in block[0].splitlines()[1:-1]]
            for line, below in zip(lines, [*lines[1:], "$ "], strict=True):
                if re.match(r"\$ (\S*/)?snaprebuild ", line):
                    shown += 1
                    known = line.startswith("$ scripts/snaprebuild ") and block[0].startswith("```console")
                    assert known or below.startswith("$ "), f"{page.name}: {line}"
    assert shown > 15


def test_every_link_leads_somewhere() -> None:
    seen = 0
    for page in PAGES:
        for target in LINK.findall(FENCED.sub("", page.read_text())):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            led_to = page.parent / path if path else page
            assert led_to.exists(), f"{page.relative_to(ROOT)} links to {target}"
            if anchor:
                seen += 1
                assert anchor in headings(led_to), f"{page.relative_to(ROOT)} links to {target}"
    assert seen > 60


def test_no_generated_page_is_stale() -> None:
    command = [ROOT / "scripts" / "docs" / "build", "--check", "reference", "commands", "api"]
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_verb_has_a_page_with_an_example() -> None:
    page = (REFERENCE / "commands.md").read_text()
    linked = dict(re.findall(r"^\| \[`([a-z -]+)`\]\(([^)#]+)", page, re.MULTILINE))
    assert set(linked) == set(verbs())
    for verb, name in linked.items():
        example = re.search(rf"^(\$ )?(scripts/)?snaprebuild {verb} ", (REFERENCE / name).read_text(), re.MULTILINE)
        assert example is not None, f"{name} has no example of {verb}"


def test_the_readme_is_short() -> None:
    """At most 130 lines of 100 columns; longer are printed paths, and the exception that people search for."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 130
    assert not [line for line in lines if len(line) > 100 and not line.startswith(("java.", "Next: ", "Undo: ", " "))]
    assert "docs/index.md" in "\n".join(lines)
    assert next(number for number, line in enumerate(lines, 1) if "snapshots written" in line) <= 25


def test_the_changelog_says_each_thing_once() -> None:
    """No line is there twice, and none begins as another one does: a merge brings lines back that were reworded."""
    text = (ROOT / "CHANGELOG.md").read_text()
    lines = [" ".join(each.split()) for each in re.findall(r"^\* .*(?:\n  .*)*", text, re.MULTILINE)]
    assert len(lines) > 50
    beginnings = [line[:45] for line in lines]
    assert sorted(beginnings) == sorted(set(beginnings))


def test_the_steps_of_the_readme_are_those_of_the_guide() -> None:
    """A step of README has the number of that step in the guide."""
    in_readme = re.findall(r"^\| (\d) \|[^|]*`snaprebuild (\w+) ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(in_readme) >= 6
    commands = (
        (ROOT / "docs" / "guides" / "repair-a-broker.md").read_text().partition("\n## The commands\n")[2].partition("\n```\n")[0]
    )
    in_guide: set[tuple[str, str]] = set()
    number = ""
    for line in commands.splitlines():
        begins = re.match(r"# (\d)\. ", line)
        if begins:
            number = begins[1]
        elif line.startswith("snaprebuild "):
            in_guide.add((number, line.split()[1]))
    assert set(in_readme) <= in_guide


def test_the_tests_that_are_named_are_there() -> None:
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("internals/proof.md", "reference/compatibility.md"))
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", pages)
    assert len(named) > 25
    for place, test in named:
        assert (ROOT / place).exists(), place
        assert not test or f"def {test}(" in (ROOT / place).read_text(), f"{place}::{test}"


def test_the_places_that_the_internals_name_are_there() -> None:
    """Packages, files, and functions after the name of a file."""
    seen = 0
    for page in (ROOT / "docs" / "internals").glob("*.md"):
        for place in re.findall(
            r"`((?:formats|snaprebuild|cli|cluster|replay|scripts|snapshots|spark|storage|tests)/[\w/.-]*)`", page.read_text()
        ):
            seen += 1
            paths = [root / place for root in (ROOT, ROOT / "snaprebuild")]
            module, _, name = place.rpartition(".")
            functions = [path.with_suffix(".py") for path in (ROOT / module, ROOT / "snaprebuild" / module) if module]
            is_there = any(path.exists() or path.with_suffix(".py").exists() for path in paths)
            assert is_there or any(path.exists() and name in path.read_text() for path in functions), f"{page.name}: {place}"
    assert seen > 60
