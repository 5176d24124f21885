"""Decoded records of Kafka's own topics: fixed texts of real kafka-dump-log, and whatever bytes may come."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import LimitExceededError
from snaprebuild.inspect.decoder_names import Decoder, decoder_of_topic
from snaprebuild.inspect.java_text import double_text, hash_order, json_text, string_hash
from snaprebuild.inspect.record_decoders import DECODED_BYTES_MAX, DecodedRecord, RecordDecoder

# Records that classes of Kafka 4.3.1 wrote, and what kafka-dump-log of 4.3.1, 4.1.2, 3.9.2 and 3.7.2 printed of each.
RECORDS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("decoded_records.json").read_text())
REAL_DECODERS = [each for each in Decoder if each is not Decoder.AUTO]
NEWEST = "4.3"


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def printed(record: DecodedRecord) -> str:
    """The end of a line of kafka-dump-log."""
    parts = [f"{name}: {part.text}" for name, part in (("key", record.key), ("payload", record.value)) if part is not None]
    return " ".join(parts)


@pytest.mark.parametrize("case", RECORDS, ids=lambda case: f"{case['decoder']}-{case['offset']}")
def test_the_texts_are_those_of_each_release(case: dict[str, Any]) -> None:
    key, value = bytes_of(case["key"]), bytes_of(case["value"])
    assert NEWEST in case["printed"]
    for release, text in case["printed"].items():
        major, minor = map(int, release.split("."))
        decoder = RecordDecoder(Decoder(case["decoder"]), (major, minor))
        record = decoder.decode(case["offset"], key, value)
        assert printed(record) == text, release
        assert ("skipping. " in text) == (record.error is not None), release
        assert ("unknown" in text.lower() and record.error is None) == (record.unknown_type is not None), release
        for part in (record.key, record.value):
            assert part is None or not part.is_json or json.loads(part.text) is not None
    newest = RecordDecoder(Decoder(case["decoder"])).decode(case["offset"], key, value)
    assert printed(newest) == case["printed"][NEWEST]


@given(
    st.sampled_from(REAL_DECODERS),
    st.sampled_from([None, (2, 7), (3, 4), (3, 9), (4, 0), (4, 3)]),
    st.none() | st.binary(max_size=40) | st.sampled_from([bytes_of(each["key"]) for each in RECORDS]),
    st.none() | st.binary(max_size=40) | st.sampled_from([bytes_of(each["value"]) for each in RECORDS]),
    st.integers(0, 60),
    st.binary(max_size=3),
)
def test_any_bytes_have_texts(
    decoder: Decoder, release: tuple[int, int] | None, key: bytes | None, value: bytes | None, at: int, put: bytes
) -> None:
    """Also damaged ones: nothing but a limit is ever raised."""
    if value is not None:
        value = value[:at] + put + value[at + len(put) :]
    record = RecordDecoder(decoder, release).decode(7, key, value)
    assert record.key is not None or record.value is not None
    if record.error is not None:
        assert f" 7, skipping. {record.error.message}" in printed(record)


def test_a_huge_value_is_refused() -> None:
    decoder = RecordDecoder(Decoder.OFFSETS)
    with pytest.raises(LimitExceededError, match="key or value to decode"):
        decoder.decode(0, b"\0\1", bytes(DECODED_BYTES_MAX + 1))
    assert decoder.decode(0, b"\0\1", bytes(DECODED_BYTES_MAX)).error is not None


def test_each_of_kafkas_own_topics_has_a_decoder() -> None:
    topics = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__remote_log_metadata", "__share_group_state")
    assert [decoder_of_topic(topic) for topic in topics] == [
        Decoder.OFFSETS,
        Decoder.TRANSACTION_LOG,
        Decoder.CLUSTER_METADATA,
        Decoder.REMOTE_LOG_METADATA,
        Decoder.SHARE_GROUP_STATE,
    ]
    assert decoder_of_topic("orders") is None


# --- texts of Java, printed by JDK 17 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-1.5, "-1.5"), (100.0, "100.0"), (1e-3, "0.001"), (9.99e-4, "9.99E-4")),
        *((9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"), (1e300, "1.0E300"), (1e21, "1.0E21")),
        *((float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (float("nan"), "NaN"), (0.1, "0.1"), (-2.5e-7, "-2.5E-7")),
    ],
)
def test_doubles_as_in_java(value: float, text: str) -> None:
    assert double_text(value) == text


def test_json_as_jackson_writes_it() -> None:
    value = {"a": [1, None, True, False, 1e10, float("nan")], 'q"\\': "\x01\x1f\x7f\n\té𝄞/"}
    assert json_text(value) == '{"a":[1,null,true,false,1.0E10,"NaN"],"q\\"\\\\":"\\u0001\\u001F\x7f\\n\\té𝄞/"}'


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("𝄞", 1772394)]
)
def test_hashes_of_strings(text: str, code: int) -> None:
    assert string_hash(text) == code


def test_a_table_of_few_elements_has_the_order_of_their_hashes() -> None:
    assert hash_order([[5, 3, 33]], int) == [33, 3, 5]  # 16 places: 33 is in the second
    assert hash_order([[each] for each in range(12)], int) == list(range(12))
