"""Which dynamic configurations are secrets: a KRaft cluster keeps their values in the metadata log as they are, not encrypted.

Clusters with ZooKeeper encrypted them (``password.encoder.secret``); KRaft does not, and relies on the log being readable by nobody
else. Kafka itself masks a value where its definition has type ``PASSWORD``, and where it does not know the name. Here each name of that
type is masked, with or without the prefix of a listener, and each that says of itself that it is a secret.

Source: ``KafkaConfigSchema.isSensitive``, ``RecordRedactor``, ``SslConfigs``, ``SaslConfigs`` of Kafka 4.3.1.
"""

from __future__ import annotations

import re

__all__ = ["is_secret"]

_PASSWORDS = (
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)
"""Of type ``PASSWORD``."""

_WORDS = re.compile(r"passw|passphrase|secret|credential|jaas|private|token$|api.?key|access.?key", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether the value of a configuration is masked."""
    return name.endswith(_PASSWORDS) or _WORDS.search(name) is not None
