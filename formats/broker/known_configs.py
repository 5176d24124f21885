"""The dynamic configurations that Kafka knows by name, and which of them hold secrets.

Source: ``KafkaConfig.configDef``, ``LogConfig.configDefCopy``, ``GroupConfig.configDef``, ``ClientMetricsConfigs.configDef`` of Kafka 4.3.1
and 3.9.2; ``ConfigDef.Type.isSensitive``. ``scripts/known-configs`` writes ``formats/schemas/known-configs.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

__all__ = ["known_configs"]


@cache
def known_configs() -> Mapping[int, Mapping[str, bool]]:
    """By the number of a type of resource (``ConfigResource.Type``) and by name: whether the value is a secret (``PASSWORD``)."""
    text = resources.files("formats").joinpath("schemas", "known-configs.json").read_text()
    return {
        int(number): {name: kind == "secret" for kind in ("plain", "secret") for name in of[kind]}
        for number, of in json.loads(text)["types"].items()
    }
