"""Which dynamic configurations are not shown: a KRaft cluster keeps their values in the metadata log as they are, not encrypted.

Clusters with ZooKeeper encrypted them (``password.encoder.secret``); KRaft does not, and relies on the log being readable by nobody
else. As a broker does, a value is masked where its definition has type ``PASSWORD``, and where nobody knows the name: that of a plugin may
be a secret. A name with the prefix of a listener, or of a listener and a SASL mechanism, is that of what follows.

Source: ``KafkaConfig.configType`` and ``maybeSensitive``, ``DynamicBrokerConfig.brokerConfigSynonyms``, ``KafkaConfigSchema.isSensitive``
of Kafka 4.3.1.
"""

from __future__ import annotations

import re
from enum import StrEnum

from formats.broker.known_configs import known_configs
from snaprebuild.cluster.metadata.image_model import ConfigResource, ResourceType

__all__ = ["Mask", "mask_of"]

_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
_OF_MECHANISMS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""``DynamicBrokerConfig.ListenerMechanismConfigs``: between listener and name stands a mechanism."""


class Mask(StrEnum):
    """Why a value is not shown."""

    SECRET = "secret"  # noqa: S105
    UNKNOWN_NAME = "unknown-name"


def mask_of(resource: ConfigResource, name: str) -> Mask | None:
    """Why the value of a configuration is masked; None where it is shown."""
    known = known_configs().get(resource.type, {})
    is_secret = known.get(name)
    if is_secret is None and resource.type == ResourceType.BROKER and (match := _LISTENER.fullmatch(name)) is not None:
        is_secret = known.get(next((each for each in _OF_MECHANISMS if match[1].endswith(each)), match[1]))
    if is_secret is None:
        return Mask.UNKNOWN_NAME
    return Mask.SECRET if is_secret else None
