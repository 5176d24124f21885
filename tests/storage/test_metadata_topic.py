"""Errors of Kafka's client where no one answers, or where it does not take its settings.

What it does next to a broker: ``tests/broker/test_produced_records.py``.
"""

import sys

import pytest

from snaprebuild.errors import OutcomeUnknownError, ReadFailedError, UsageError
from snaprebuild.storage.remote.metadata_topic import MetadataTopic

SECRET = "not-to-be-told"


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(UsageError, match=r"pip install confluent-kafka"):
        MetadataTopic("127.0.0.1:1", {})


@pytest.mark.full  # with confluent-kafka
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"no.such.thing": SECRET}, ": look at no.such.thing"),
        ({"security.protocol": SECRET}, ": look at security.protocol"),
        ({"socket.timeout.ms": SECRET}, ": look at socket.timeout.ms"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, ": look at sasl.username, sasl.password"),
        ({"security.protocol": "SSL", "ssl.ca.pem": SECRET}, ": look at ssl.ca.pem"),
    ],
)
def test_settings_that_the_client_does_not_take(settings: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        MetadataTopic("127.0.0.1:1", settings)
    assert f"the client does not take these settings{named}" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.full  # with confluent-kafka
def test_a_cluster_that_is_silent() -> None:
    """Something listens, and never answers."""
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        topic = MetadataTopic(f"127.0.0.1:{silent.getsockname()[1]}", {}, patience_seconds=1.0)
        with pytest.raises(ReadFailedError, match="the brokers do not answer"):
            topic.topics(["t"])
        with pytest.raises(ReadFailedError, match="cannot be read"):
            next(topic.read_new(0))
        with pytest.raises(OutcomeUnknownError, match="whether a record was appended is not known"):
            topic.append(0, b"x")
        topic.close()
