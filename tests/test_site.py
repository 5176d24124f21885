"""The documentation site: it builds strictly from packages, and a page loads nothing from a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
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
