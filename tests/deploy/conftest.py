"""Helpers that start real brokers are next to the tests of brokers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "broker"))
