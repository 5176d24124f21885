"""The settings of a client of Kafka, and what is said where no one answers.

What it does next to a broker: ``tests/broker/test_produced_records.py``.
"""

import sys
from pathlib import Path

import pytest

from snaprebuild.errors import OutcomeUnknownError, ReadFailedError, UsageError
from snaprebuild.storage.remote.metadata_topic import MetadataTopic, read_client_config

SECRET = "not-to-be-told"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.properties"
    path.write_bytes(text.encode())
    return str(path)


def test_settings(tmp_path: Path) -> None:
    text = f"# a comment\n! another\n\n security.protocol = SASL_SSL\nsasl.password={SECRET}==\nempty=\n"
    expected = {"security.protocol": "SASL_SSL", "sasl.password": f"{SECRET}==", "empty": ""}
    assert read_client_config(written(tmp_path, text)) == expected


def test_what_ends_a_line_elsewhere_may_stand_in_a_password(tmp_path: Path) -> None:
    expected = {"sasl.password": "a\u2028b\x1cc\x0bd", "sasl.username": "u"}
    text = "".join(f"{name}={value}\r\n" for name, value in expected.items())
    assert read_client_config(written(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (SECRET, "line 2: expected NAME=VALUE"),
        (f"={SECRET}", "line 2: expected NAME=VALUE"),
        (f"sasl password={SECRET}", "line 2: expected NAME=VALUE"),
        (f"client.id={SECRET}", "line 2: client.id is set twice"),
        (f"acks={SECRET}", "line 2: acks may not be set here"),
        (f"plugin.library.paths={SECRET}", "line 2: plugin.library.paths may not be set here"),
        (f"sasl.jaas.config={SECRET}", "line 2: sasl.jaas.config is a setting of the Java client; here sasl.username"),
    ],
)
def test_settings_that_are_none(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_client_config(written(tmp_path, f"client.id=x\n{line}\n"))
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"a=\xff")
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"\n")
    for path, message in (
        (tmp_path, "cannot be read"),
        (tmp_path / "bytes", "byte 2 is not UTF-8"),
        (tmp_path / "large", "1048576"),
    ):
        with pytest.raises(UsageError, match=message):
            read_client_config(str(path))


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
        ({"socket.timeout.ms": SECRET}, ""),
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
