"""The documentation site: it builds strictly from packages, and a page loads nothing from a network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import json_pages
import pytest
import site_search
from count_code import words_by_hand

from snaprebuild.cli.main import verbs

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?(https?:)?//", re.IGNORECASE)
SETTINGS = {"NO_MKDOCS_2_WARNING": "1", "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}


@pytest.mark.full
def test_the_site_builds_without_warnings_and_loads_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | SETTINGS, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        external = [tag[0] for tag in LOADED.finditer(page.read_text()) if 'rel="canonical"' not in tag[0]]
        assert external == [], page.relative_to(tmp_path)


def test_every_page_is_in_the_menu() -> None:
    listed = re.findall(r"^ +- (?:[^:\n]+: )?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))


def test_each_page_of_json_is_generated() -> None:
    """A page of a schema or a command that has gone would stay, and the search would find it."""
    pages = {path.relative_to(ROOT) for path in (ROOT / "docs" / "reference" / "json").iterdir()}
    written = {path.relative_to(ROOT) for path in json_pages.texts()}
    assert written == {Path("docs/reference/json.md"), *pages}


def test_each_command_with_a_document_has_a_page_of_json() -> None:
    with_json = {name for name, command in verbs().items() if "output" in {option.name for option in command.params}}
    assert {name.replace(" ", "-") for name in with_json} == set(json_pages.pages())


def test_pages_are_short() -> None:
    """At most 36,000 words are written by hand; a guide has at most 1,000, a concept 1,200.

    ``scripts/count_code.py`` counts: no page that is generated, and nothing of what commands print in blocks of ``console``, which
    ``scripts/docs/build output`` writes.
    """
    words = {page.relative_to(ROOT).as_posix(): count for page, count in words_by_hand(ROOT).items()}
    assert {"README.md", "docs/index.md", "docs/internals/proof.md"} <= words.keys()
    assert sum(words.values()) <= 36_000
    for folder, most in {"docs/guides/": 1_000, "docs/concepts/": 1_200}.items():
        assert {name: count for name, count in words.items() if name.startswith(folder) and count > most} == {}


def test_the_start_page_shows_output_and_a_picture() -> None:
    page = (ROOT / "docs" / "index.md").read_text()
    assert re.search(r"^\$ scripts/snaprebuild .*\n\d+ snapshots written", page, re.MULTILINE), "scripts/docs/build output fills it"
    (picture,) = re.findall(r"^!\[.+\]\((images/\S+)\)$", page, re.MULTILINE)
    assert (ROOT / "docs" / picture).is_file()


def test_what_the_search_names_is_there() -> None:
    """A page that was renamed would come back into the search, or lose its place."""
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [each for each in site_search.BOOSTS if not any(page.startswith(each) for page in pages)] == []
