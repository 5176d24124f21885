"""Real brokers, which some of these tests start, are in the directory of their own tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "broker"))
