"""The bundled files that real brokers wrote, by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
AIVEN = FIXTURES / "aiven-layout"
"""Objects of remote storage: what is called ``.log`` there is in chunks, compressed or encrypted, and no broker's file."""


def broker_files(*patterns: str) -> list[Path]:
    """Files that match a pattern, sorted. Fails where there is none."""
    found = {path for pattern in patterns for path in FIXTURES.rglob(pattern) if path.is_file() and not path.is_relative_to(AIVEN)}
    assert found, f"no fixture matches {patterns}"
    return sorted(found)


def fixture_files(*patterns: str) -> list[object]:
    """Parameters, one for each of ``broker_files``."""
    return [pytest.param(path, id=str(path.relative_to(FIXTURES))) for path in broker_files(*patterns)]
