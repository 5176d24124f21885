"""README.md shows what the commands really print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_examples_are_real_output() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "readme-output", "--check"], capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_page_that_is_linked_exists() -> None:
    import re

    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
