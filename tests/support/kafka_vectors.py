"""The golden vectors: small logs and snapshot files with what the classes of Kafka 2.7.2, 3.9.0 and 4.3.1 made of them.

``fixtures/producer-state-vectors.json`` says how it was made.
"""

import json
from collections.abc import Iterable
from typing import Any

from manifests import FIXTURES

from formats.partition.producer_snapshot import ProducerEntry

_DOCUMENT = json.loads((FIXTURES / "producer-state-vectors.json").read_text())
VECTORS: list[dict[str, Any]] = _DOCUMENT["vectors"]
SCENARIOS: dict[str, dict[str, Any]] = {scenario["name"]: scenario for scenario in _DOCUMENT["rebuildScenarios"]}
STRAYS: dict[str, dict[str, Any]] = {scenario["name"]: scenario for scenario in _DOCUMENT["straySnapshots"]}


def entries_of(rows: Iterable[dict[str, int]]) -> list[ProducerEntry]:
    """Entries from rows in JSON: the order of their fields is that of ``ProducerEntry``."""
    return [ProducerEntry(*row.values()) for row in rows]
