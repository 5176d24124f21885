"""JSON documents that are read piece by piece, compared with ``json.loads``."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import json_document
from formats.errors import BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.json_document import JsonMembers

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=4), each, max_size=3),
    max_leaves=12,
)


def read(data: bytes, streamed: tuple[str, ...] = (), chunk: int = 0) -> list[tuple[str, Any]]:
    file = io.BytesIO(data)
    return list(JsonMembers((lambda count: file.read(min(count, chunk))) if chunk else file.read, streamed, file="x.json"))


@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=5),
    st.lists(VALUES, max_size=5),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_any_document_in_pieces_of_any_size(
    members: dict[str, Any], elements: list[Any], chunk: int, is_ascii: bool, indent: int | None
) -> None:
    whole = {**members, "elements": elements}
    data = json.dumps(whole, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    reported = read(data, ("elements",), chunk)
    assert [each for name, each in reported if name == "elements"] == elements
    assert {name: each for name, each in reported if name != "elements"} == {
        name: each for name, each in members.items() if name != "elements"
    }
    assert dict(read(data, (), chunk)) == whole


@pytest.mark.parametrize(
    ("text", "kind", "position", "said"),
    [
        ("", TruncatedError, 0, "expected {, found its end"),
        ("[]", BadValueError, 0, "expected {, found '['"),
        ('{"a": 1', TruncatedError, 7, "expected ,, found its end"),
        ('{"a": [1, 2', TruncatedError, 11, "expected JSON"),
        ('{"a": "xyz', BadValueError, 6, "expected JSON"),
        ('{"a" 1}', BadValueError, 5, "expected :, found '1'"),
        ('{"a": 1,}', BadValueError, 8, "expected a name, found '}'"),
        ('{"a": 1} x', BadValueError, 9, "nothing after the object"),
        ('{"a": 1, "a": 2}', BadValueError, 12, "each name once, found 'a'"),
        ('{"a": NaN}', BadValueError, 6, "a number of JSON"),
        ('{"a": ' + "9" * 5000 + "}", BadValueError, 6, "a number of JSON"),
        ('{"a": ' + "[" * 200_000 + "}", LimitExceededError, 6, "nested less"),
        ('{"list": 3}', BadValueError, 9, "expected [, found '3'"),
        ('{"list": [1 2]}', BadValueError, 12, "expected ,, found '2'"),
        ('{"list": [1, {"b": tru}]}', BadValueError, 19, "expected JSON"),
        ('{"a": "ä", "b": oops}', BadValueError, 17, "expected JSON"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
@pytest.mark.parametrize("chunk", [1, 7, 0], ids=["1 byte", "7 bytes", "at once"])
def test_what_is_wrong_and_where(text: str, kind: type[FormatError], position: int, said: str, chunk: int) -> None:
    if chunk and len(text) > 1000:
        chunk = 999
    with pytest.raises(FormatError) as caught:
        read(text.encode(), ("list",), chunk)
    assert said in str(caught.value)
    assert (type(caught.value), caught.value.position, caught.value.file) == (kind, position, "x.json")


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(BadValueError, match=r"expected UTF-8, found a byte of 0xff"):
        read(b'{"a": "\xff"}')


def test_a_value_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "VALUE_CHARS_MAX", 1000)
    monkeypatch.setattr(json_document, "CHUNK_BYTES", 100)
    with pytest.raises(LimitExceededError, match="at most 1000 characters"):
        read(json.dumps({"a": ["x"] * 1000}).encode())
    assert len(read(json.dumps({"list": ["x" * 900] * 1000}).encode(), ("list",))) == 1000, "each of them is short"


def test_members_have_a_limit() -> None:
    many = {f"{number:x}": number for number in range(json_document.MEMBERS_MAX)}
    assert len(read(json.dumps(many).encode())) == len(many)
    with pytest.raises(LimitExceededError, match="at most 1000 members"):
        read(json.dumps({**many, "more": 1}).encode())


def test_names_of_empty_lists_are_seen() -> None:
    members = JsonMembers(io.BytesIO(b'{"list": [], "b": 2}').read, ("list",))
    assert list(members) == [("b", 2)]
    assert members.seen == {"list", "b"}
