"""Java properties, ``meta.properties`` and ``.kafka_cleanshutdown``."""

import contextlib
from pathlib import Path

import pytest
from fixture_files import each_broker_file
from hypothesis import given
from hypothesis import strategies as st
from kafka_file_writers import write_clean_shutdown, write_meta_properties, write_properties
from manifests import FIXTURES
from memory_peak import measured

from formats.broker.broker_files import (
    CleanShutdown,
    MetaProperties,
    Properties,
    Property,
    read_clean_shutdown,
    read_meta_properties,
    read_properties,
)
from formats.errors import BadValueError, BadVersionError, FormatError, LimitExceededError


@each_broker_file("meta.properties")
def test_meta_properties_of_brokers_round_trip(path: Path) -> None:
    data = path.read_bytes()
    meta = read_meta_properties(data, file=path.name)
    assert write_meta_properties(meta) == data
    assert write_properties(read_properties(data)) == data


def test_meta_properties_that_are_large() -> None:
    """They take many times their bytes, and verbs keep those of several directories."""
    data = b"version=1\nnode.id=1\ncluster.id=x\n#" + b"x" * 70_000
    with pytest.raises(LimitExceededError, match="at most 65536 bytes"):
        read_meta_properties(data)
    assert read_meta_properties(data[:65_536]).node_id == 1


def test_meta_properties_by_hand() -> None:
    data = (FIXTURES / "kafka4-mixed/logs/meta.properties").read_bytes()
    assert read_meta_properties(data) == MetaProperties(
        version=1,
        node_id=1,
        cluster_id="5L6g3nShT-eMCtK--X86sw",
        directory_id=bytes.fromhex("a3bc1114f233488eaabc02abaf4e4123"),
        comments=("#", "#Sat Nov 21 11:09:07 UTC 2026"),
    )
    older = read_meta_properties((FIXTURES / "kafka27-mixed/logs/meta.properties").read_bytes())
    assert (older.version, older.node_id, older.cluster_id, older.directory_id) == (0, 1, "oPmDX1AuSamVuUQffb-GZA", None)


@each_broker_file(".kafka_cleanshutdown")
def test_clean_shutdown_files_of_brokers_round_trip(path: Path) -> None:
    data = path.read_bytes()
    clean_shutdown = read_clean_shutdown(data)
    assert (clean_shutdown.broker_epoch is None) == (not data)
    assert write_clean_shutdown(clean_shutdown) == data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a=\xe9\xa0", {"a": "é\u00a0"}),
        ("a = = b", {"a": "= b"}),
        ("a=b  ", {"a": "b  "}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("  \t\f a=b", {"a": "b"}),
        ("a=1\ra=2\r\na=3\n", {"a": "3"}),
        # Comments and blank lines.
        ("# a=b\n  ! c=d\n\n \t\ne=f", {"e": "f"}),
        ("# a backslash continues no comment \\\nb=c", {"b": "c"}),
        # Continuation lines.
        ("log.dirs=/a,\\\n         /b,\\\r\n\t/c", {"log.dirs": "/a,/b,/c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a\\\nb=c", {"ab": "c"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n\\\n#a=b\nc=d", {"c": "d"}),
        ("\\\n\n#a=b\nc=d", {"c": "d"}),
        # Escapes.
        (r"a\ b=c", {"a b": "c"}),
        (r"a\=b\:c=d", {"a=b:c": "d"}),
        (r"a=\t\n\r\f\b\z\\", {"a": "\t\n\r\fbz\\"}),
        (r"a=\u0041\u00e9\u20AC", {"a": "Aé€"}),
        (r"a=\\u0041", {"a": r"\u0041"}),
        ("", {}),
    ],
)
def test_properties_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert {entry.key: entry.value for entry in read_properties(text.encode("latin-1")).entries} == expected


@pytest.mark.parametrize("word", [*(pytest.param(each, marks=pytest.mark.full) for each in ("\\a", "=")), "\\ud83d"])
def test_a_long_key_or_value_costs_what_its_bytes_are_worth(word: str) -> None:
    count = (256 << 10) // len(word)
    data = (word * count).encode()
    with measured() as peak:
        (found,) = read_properties(data).entries
    assert peak.bytes <= 4 * len(data) + (4 << 20)  # measured: 3.0 MB above four times, for escapes of six bytes
    assert len(found.key + found.value) == count - (word == "=")


@pytest.mark.full
@pytest.mark.parametrize(("line", "is_refused"), [("a\n", True), ("a\\\n", False)])
def test_short_lines_have_a_limit(line: str, is_refused: bool) -> None:
    data = (line * 110_000).encode()
    with measured() as peak, pytest.raises(LimitExceededError) if is_refused else contextlib.nullcontext():
        read_properties(data)
    assert peak.bytes <= 4 * len(data) + (16 << 20)


def test_the_last_of_a_key_counts_and_lines_are_reported() -> None:
    properties = read_properties(b"# one\na=1\n\nb=\\\n2\na=3\n")
    assert properties.entries == (Property("a", "1", 2), Property("b", "2", 4), Property("a", "3", 6))
    assert properties.find("a") == Property("a", "3", 6)
    assert properties.get("c") is None
    assert properties.comments == ("# one",)


@pytest.mark.parametrize("text", ["a=\\u", "a=\\u12", "a=\\u12g4", "\\uzzzz=b", "a=\\u+123"])
def test_malformed_unicode_escapes(text: str) -> None:
    with pytest.raises(BadValueError) as caught:
        read_properties(f"x=y\n{text}\n".encode(), file="server.properties")
    assert (caught.value.file, caught.value.position, caught.value.unit) == ("server.properties", 2, "line")


def test_properties_are_written_as_java_writes_them() -> None:
    properties = Properties(
        (
            Property("a b", "  c d ", 0),
            Property("#k=:!", "=:#!", 0),
            Property("tab\t", "\n\r\f\\", 0),
            Property("é", "€\U0001f600\x7f", 0),
        ),
        ("#", "# date"),
    )
    # Expected by hand from Properties.saveConvert.
    assert write_properties(properties).decode("ascii") == (
        "#\n# date\na\\ b=\\  c d \n\\#k\\=\\:\\!=\\=\\:\\#\\!\ntab\\t=\\n\\r\\f\\\\\n\\u00E9=\\u20AC\\uD83D\\uDE00\\u007F\n"
    )


@pytest.mark.parametrize("comment", ["a=b", "", "#a\nb=c", "#a\rb", "#€"])
def test_comments_that_could_not_be_read_back(comment: str) -> None:
    with pytest.raises(BadValueError):
        write_properties(Properties((), (comment,)))


KEYS = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.lists(st.tuples(KEYS, KEYS)))
def test_properties_round_trip(pairs: list[tuple[str, str]]) -> None:
    written = write_properties(Properties(tuple(Property(key, value, 0) for key, value in pairs)))
    assert [(entry.key, entry.value) for entry in read_properties(written).entries] == pairs


CLUSTER = "cluster.id=c\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", MetaProperties(0, None, None)),
        ("broker.id=7\n", MetaProperties(0, 7, None)),
        ("broker.id=7\nnode.id=8\nunknown=9\n", MetaProperties(0, 7, None, ignored_node_id="8")),
        ("version= 1 \nnode.id=8\nbroker.id=7\n" + CLUSTER, MetaProperties(1, 8, "c")),
        ("version=0\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n", MetaProperties(0, None, None, bytes(range(16)))),
        ("version=2\nnode.id=8\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n", MetaProperties(2, 8, None, bytes(range(16)))),
    ],
)
def test_meta_properties_as_kafka_reads_them(text: str, expected: MetaProperties) -> None:
    assert read_meta_properties(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        ("version=3\n", BadVersionError, 1),
        ("#\nversion=-1\n", BadVersionError, 2),
        ("version=\n", BadVersionError, 1),
        ("version=1\n" + CLUSTER, BadValueError, None),
        ("version=1\nnode.id=1\n", BadValueError, None),
        ("version=2\nnode.id=1\n", BadValueError, None),
        ("version=1\nnode.id=x\n" + CLUSTER, BadValueError, 2),
        ("version=1\nnode.id=2147483648\n" + CLUSTER, BadValueError, 2),
        ("broker.id=1 \n", BadValueError, 1),
        ("broker.id=1\ndirectory.id=short\n", BadValueError, 2),
        ("broker.id=\\u12\n", BadValueError, 1),
    ],
)
def test_faults_of_meta_properties(text: str, error: type[FormatError], line: int | None) -> None:
    with pytest.raises(error) as caught:
        read_meta_properties(text.encode(), file="meta.properties")
    assert type(caught.value) is error
    assert (caught.value.file, caught.value.position) == ("meta.properties", line)
    assert line is None or caught.value.unit == "line"


@pytest.mark.parametrize(
    ("meta", "error"),
    [
        (MetaProperties(3, 1, "c"), BadVersionError),
        (MetaProperties(1, None, "c"), BadValueError),
        (MetaProperties(1, 1, None), BadValueError),
        (MetaProperties(0, 2**31, None), BadValueError),
        (MetaProperties(0, 1, None, b"short"), BadValueError),
        (MetaProperties(0, 1, None, None, ("no comment",)), BadValueError),
    ],
)
def test_meta_properties_that_could_not_be_read_back(meta: MetaProperties, error: type[FormatError]) -> None:
    with pytest.raises(error):
        write_meta_properties(meta)


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b"", None),
        (b'{"version":0,"brokerEpoch":435}', 435),
        (b' {"brokerEpoch" : 5, "version": 7, "new": [1, {}]}\n', 5),
        (b'{"version":0,"brokerEpoch":true}', None),
        (b'{"version":0,"brokerEpoch":9223372036854775808}', None),
        (b'{"version":0,"brokerEpoch":' + b"9" * 5000 + b"}", None),
        (b"435", None),
        (b"\xff\xfe", None),
        (b"[" * 60_000, None),
        (b'{"brokerEpoch":5' + b" " * 70_000 + b"}", None),
    ],
)
def test_clean_shutdown_as_kafka_reads_it(data: bytes, epoch: int | None) -> None:
    assert read_clean_shutdown(data) == CleanShutdown(epoch)


def test_clean_shutdown_is_written() -> None:
    assert write_clean_shutdown(CleanShutdown()) == b""
    assert write_clean_shutdown(CleanShutdown(435)) == b'{"version":0,"brokerEpoch":435}'
    with pytest.raises(BadValueError):
        write_clean_shutdown(CleanShutdown(2**63))
