"""Integers of fixed and of variable length, against the values in Kafka's ``ByteUtilsTest`` and the protocol guide."""

import io

import pytest
from construct import Bytes, Construct, GreedyBytes, Struct
from hypothesis import given
from hypothesis import strategies as st
from strategies import INT32, INT64

from formats.errors import BadLengthError, BadValueError, FormatError, TruncatedError
from formats.primitives import INT8, INT16, UINT16, UINT32, UNSIGNED_VARINT, VARINT, VARLONG, parse_whole
from formats.primitives import INT32 as INT32_GRAMMAR
from formats.primitives import INT64 as INT64_GRAMMAR


@pytest.mark.parametrize(
    ("grammar", "value", "data"),
    [
        (INT8, -2, "fe"),
        (INT16, -2, "fffe"),
        (INT32_GRAMMAR, 0x01020304, "01020304"),
        (INT64_GRAMMAR, 0x0102030405060708, "0102030405060708"),
        (UINT16, 65534, "fffe"),
        (UINT32, 4294967294, "fffffffe"),
    ],
)
def test_integers_are_big_endian(grammar: Construct, value: int, data: str) -> None:
    assert grammar.build(value) == bytes.fromhex(data)
    assert grammar.parse(bytes.fromhex(data)) == value
    assert grammar.sizeof() == len(bytes.fromhex(data))


UNSIGNED = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31, "8080808008"),
    (2**32 - 1, "ffffffff0f"),
]
SIGNED = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-64, "7f"),
    (64, "8001"),
    (-8193, "818001"),
    (134217728, "8080808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
LONG = [
    (-17179869184, "ffffffff7f"),
    (17179869184, "808080808001"),
    (4611686018427387904, "80808080808080808001"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(
    ("grammar", "value", "data"),
    [
        *((UNSIGNED_VARINT, *case) for case in UNSIGNED),
        *((VARINT, *case) for case in SIGNED),
        *((VARLONG, *case) for case in SIGNED + LONG),
    ],
)
def test_varints_of_kafka(grammar: Construct, value: int, data: str) -> None:
    assert grammar.build(value).hex() == data
    assert grammar.parse(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("grammar", "data"), [(VARINT, "ffffffffff01"), (UNSIGNED_VARINT, "ffffffffff01"), (VARLONG, "ffffffffffffffffffff01")]
)
def test_a_varint_that_does_not_end_is_refused(grammar: Construct, data: str) -> None:
    with pytest.raises(BadLengthError) as caught:
        grammar.parse(bytes.fromhex(data))
    assert "varint" in str(caught.value)


@pytest.mark.parametrize(
    ("grammar", "data", "value"),
    [
        # Java's shifts drop what does not fit: 7 * 5 = 35 bits, of which 32 count.
        (UNSIGNED_VARINT, "ffffffff7f", 2**32 - 1),
        (VARINT, "8080808070", 0),
        (VARLONG, "8080808080808080807e", 0),
        # More bytes than needed are still the same number.
        (UNSIGNED_VARINT, "8180808000", 1),
    ],
)
def test_bits_above_the_width_are_dropped(grammar: Construct, data: str, value: int) -> None:
    assert grammar.parse(bytes.fromhex(data)) == value


@pytest.mark.parametrize("grammar", [VARINT, UNSIGNED_VARINT, VARLONG])
@pytest.mark.parametrize("data", ["", "80"])
def test_a_varint_that_is_cut_off_is_truncated(grammar: Construct, data: str) -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_whole(grammar, bytes.fromhex(data), "a count", int, position=40)
    assert caught.value.position == 40
    assert caught.value.what == "a count"


@pytest.mark.parametrize(
    ("grammar", "value"),
    [(VARINT, 2**31), (VARINT, -(2**31) - 1), (UNSIGNED_VARINT, -1), (UNSIGNED_VARINT, 2**32), (VARLONG, 2**63)],
)
def test_a_number_that_does_not_fit_is_not_written(grammar: Construct, value: int) -> None:
    with pytest.raises(BadValueError):
        grammar.build(value)


@given(value=INT32)
def test_varint_round_trip(value: int) -> None:
    data = VARINT.build(value)
    assert len(data) <= 5
    assert VARINT.parse(data) == value


@given(value=INT64, rest=st.binary(max_size=3))
def test_varlong_round_trip_reads_no_byte_more(value: int, rest: bytes) -> None:
    stream = io.BytesIO(VARLONG.build(value) + rest)
    assert VARLONG.parse_stream(stream) == value
    assert stream.read() == rest


class TestParseWhole:
    GRAMMAR = Struct("count" / VARINT, "data" / Bytes(4), "rest" / GreedyBytes)

    def test_value(self) -> None:
        assert parse_whole(self.GRAMMAR, memoryview(b"\x02abcdef"), "thing", lambda it: (it.count, it.data, it.rest)) == (
            1,
            b"abcd",
            b"ef",
        )

    def test_truncated(self) -> None:
        with pytest.raises(TruncatedError) as caught:
            parse_whole(self.GRAMMAR, b"\x02abc", "thing", lambda it: it, position=7)
        assert (caught.value.what, caught.value.position, caught.value.found) == ("thing", 7, "4 bytes")

    def test_position_of_an_inner_error_counts_from_the_file(self) -> None:
        def fail(it: object) -> None:
            raise BadValueError("inner", position=3)

        with pytest.raises(BadValueError) as caught:
            parse_whole(self.GRAMMAR, b"\x02abcd", "thing", fail, position=100)
        assert caught.value.position == 103

    @pytest.mark.parametrize("error", [ValueError("no"), OverflowError("no")])
    def test_nothing_but_format_errors_escape(self, error: Exception) -> None:
        def fail(it: object) -> None:
            raise error

        with pytest.raises(BadValueError) as caught:
            parse_whole(self.GRAMMAR, b"\x02abcd", "thing", fail, position=9)
        assert caught.value.position == 9

    @given(data=st.binary(max_size=20))
    def test_any_bytes(self, data: bytes) -> None:
        try:
            count, rest = parse_whole(self.GRAMMAR, data, "thing", lambda it: (it.count, it.rest))
        except FormatError:
            assert len(data) < 9 or data[:5] >= b"\x80" * 5
        else:
            assert data.endswith(rest)
            assert -(2**31) <= count < 2**31
