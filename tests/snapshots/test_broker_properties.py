"""Directories and expirations in a ``server.properties`` that anybody may have written."""

import pytest
from memory_peak import measured

from formats.broker.broker_files import read_properties
from snaprebuild.cluster.quorum.advise import metadata_directory_of
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.source.broker_properties import (
    LOG_DIRS_MAX,
    expiration_of,
    log_dirs_of,
    log_dirs_online,
    metadata_dir_of,
    number_of,
)

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"log.dirs=,", "log.dirs: expected at least one directory, found none"),
        (b"log.dirs=/a\\u0000b", "log.dirs: expected a directory, found '/a\\x00b'"),
        (b"log.dirs=/a,\\ud800", "log.dirs: expected a directory, found '\\ud800'"),
        (b"log.dirs=" + b",".join([b"/a"] * (LOG_DIRS_MAX + 1)), "log.dirs: expected at most 1000 directories, found 1001"),
        (b"log.dirs=" + b"/a," * 600_000, "log.dirs: expected at most 1000 directories, found 600001"),
    ],
    ids=["none", "null", "surrogate", "one-more", "many"],
)
def test_log_dirs_that_are_none(text: bytes, said: str) -> None:
    properties = read_properties(text)
    for function in (log_dirs_of, lambda each: log_dirs_online(each, "x"), metadata_directory_of):
        with measured() as peak, pytest.raises(UsageError) as reported:
            function(properties)
        assert str(reported.value) == f"server.properties: {said}"
        assert peak.bytes <= 1 << 20


def test_as_many_log_dirs_as_may_be() -> None:
    paths = [f"/absent/{number}" for number in range(LOG_DIRS_MAX)]
    assert log_dirs_of(read_properties(f"log.dirs={' , '.join(paths)}".encode())) == paths


def test_a_metadata_log_dir_that_is_none() -> None:
    for text in (b"metadata.log.dir=/a\\u0000b", b"metadata.log.dir=\\ud800"):
        properties = read_properties(text)
        for function in (metadata_dir_of, metadata_directory_of):
            with pytest.raises(UsageError, match=r"metadata\.log\.dir: expected a directory, found"):
                function(properties)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log.dirs = /a , /b ,", ["/a", "/b"]),
        ("log.dir=/a", ["/a"]),
        ("log.dir=/a\nlog.dirs=/b", ["/b"]),
        ("broker.id=1", ["/tmp/kafka-logs"]),
    ],
)
def test_log_dirs(text: str, expected: list[str]) -> None:
    assert log_dirs_of(read_properties(text.encode())) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", DAY_MS),
        ("producer.id.expiration.ms=5000", 5000),
        ("producer.id.expiration.ms=5000\ntransactional.id.expiration.ms=900000000", 5000),
        ("transactional.id.expiration.ms=900000000", 900_000_000),
        ("transactional.id.expiration.ms=60000", DAY_MS),
        ("inter.broker.protocol.version=2.7-IV0", 7 * DAY_MS),
        ("inter.broker.protocol.version=3.3", 7 * DAY_MS),
        ("inter.broker.protocol.version=3.4-IV0", DAY_MS),
        ("producer.id.expiration.ms=5000\ninter.broker.protocol.version=2.7", 5000),
    ],
)
def test_the_longest_expiration_that_this_broker_may_use(text: str, expected: int) -> None:
    assert expiration_of(read_properties(text.encode())) == expected


@pytest.mark.parametrize(
    "text",
    [
        "producer.id.expiration.ms=soon",
        "producer.id.expiration.ms=0",
        "transactional.id.expiration.ms=x",
        "inter.broker.protocol.version=new",
        f"producer.id.expiration.ms={2**63}",
        "producer.id.expiration.ms=-1",
        "producer.id.expiration.ms=1_000",
        "producer.id.expiration.ms=\\u0661\\u0660",
    ],
)
def test_an_expiration_that_is_none(text: str) -> None:
    with pytest.raises(UsageError):
        expiration_of(read_properties(text.encode()))


@pytest.mark.parametrize(("text", "expected"), [("1", 1), (" 2147483647 ", 2**31 - 1), ("-1", -1), ("-60000", -60_000)])
def test_a_number_that_may_be_unlimited(text: str, expected: int) -> None:
    properties = read_properties(f"log.retention.hours={text}".encode())
    assert number_of(properties, "log.retention.hours", 2**31 - 1, may_be_unlimited=True) == expected
    assert number_of(properties, "log.retention.ms", may_be_unlimited=True) is None
    assert number_of(None, "log.retention.hours", may_be_unlimited=True) is None


@pytest.mark.parametrize("text", ["1_000", "\\u0661\\u0660", "0", "-0", "--1", "+5", "1.5", "2147483648", "9" * 20, "-", ""])
def test_what_is_no_retention(text: str) -> None:
    """Python's int() takes the first two."""
    properties = read_properties(f"log.retention.hours={text}".encode())
    expected = "server.properties: log.retention.hours: expected a number from 1 to 2147483647, or -1 for no limit, found "
    with pytest.raises(UsageError) as refused:
        number_of(properties, "log.retention.hours", 2**31 - 1, may_be_unlimited=True)
    assert str(refused.value).startswith(expected)
