"""A file with settings of a client of Kafka: ``name=value`` lines, with the names that librdkafka knows."""

from __future__ import annotations

from snaprebuild.errors import UsageError

__all__ = ["read_client_config"]

CONFIG_BYTES_MAX = 1 << 20

DECIDED_HERE = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "isolation.level",
        "metadata.broker.list",
        "request.required.acks",
        "transactional.id",
    }
)
"""What the promises about records rest on."""

LOADS_CODE = frozenset({"plugin.library.paths"})

JAVA_ONLY = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location (PEM)",
    "ssl.keystore.type": "ssl.keystore.location (PKCS#12), or ssl.certificate.location and ssl.key.location (PEM)",
}
"""Settings of the Java client with what librdkafka has in their place."""


def read_client_config(path: str) -> dict[str, str]:
    """Reads settings. No message repeats a value: there are passwords among them.

    Args:
        path: of the file; lines that begin with ``#`` or ``!`` say nothing.

    Raises:
        UsageError: it cannot be read, a line is no setting, or sets what is not for it to set.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise UsageError(f"the settings cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the settings are no text: byte {error.start} is not UTF-8", path=path) from error
    if len(data) > CONFIG_BYTES_MAX:
        raise UsageError(f"the settings have more than {CONFIG_BYTES_MAX} bytes", path=path)
    found: dict[str, str] = {}
    # Not splitlines(): a password may hold what ends a line elsewhere.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, equals, value = (part.strip() for part in stripped.partition("="))
        if not equals or not name or " " in name:
            raise UsageError(f"line {number}: expected NAME=VALUE", path=path)
        if name in found:
            raise UsageError(f"line {number}: {name} is set twice", path=path)
        if name in JAVA_ONLY:
            raise UsageError(f"line {number}: {name} is a setting of the Java client; here {JAVA_ONLY[name]}", path=path)
        if name in DECIDED_HERE | LOADS_CODE:
            raise UsageError(f"line {number}: {name} is not to be set here", path=path)
        found[name] = value
    return found
