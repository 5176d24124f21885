"""The bundled files that real brokers wrote, by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def fixture_files(*patterns: str) -> list[object]:
    """Parameters, one for each fixture file that matches a pattern. Fails at collection when there is none."""
    found = sorted({path for pattern in patterns for path in FIXTURES.rglob(pattern) if path.is_file()})
    assert found, f"no fixture matches {patterns}"
    return [pytest.param(path, id=str(path.relative_to(FIXTURES))) for path in found]
