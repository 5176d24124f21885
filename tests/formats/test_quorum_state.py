"""``quorum-state``: the files of real nodes byte for byte, and what is refused."""

import contextlib
import re
import sys
from pathlib import Path

import pytest
from fixture_files import each_broker_file
from kafka_file_writers import write_quorum_state
from memory_peak import measured

from formats import limits
from formats.errors import BadValueError, LimitExceededError
from formats.metadata.quorum_state import QuorumState, read_quorum_state


@each_broker_file("quorum-state")
def test_bundled(path: Path) -> None:
    state = read_quorum_state(path.read_bytes())
    text = path.read_text()
    assert f'"leaderId":{state.leader_id},"leaderEpoch":{state.leader_epoch},"votedId":{state.voted_id},' in text
    assert text.endswith(f'"data_version":{state.data_version}}}')
    assert (state.voted_directory_id is None) == (state.data_version == 0)
    assert (state.voters is None) == (state.data_version == 1)
    assert re.findall(r'"voterId":(\d+)', text) == [str(each) for each in state.voters or ()]
    assert write_quorum_state(state) == path.read_bytes()


def test_what_newer_versions_add_is_ignored() -> None:
    data = b'{"leaderId":2,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","more":[],"data_version":2}'
    assert read_quorum_state(data) == QuorumState(2, 2, 7, -1, "A" * 22)


VOTED = b'{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":1'


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        (b"", "expected JSON"),
        (b"[" * 100_000, "expected JSON"),
        (b"[1]", "expected a JSON object, found list"),
        (b'{"data_version":1,"leaderId":"1"}', "leaderId: expected an int32, found \"'1'\""),
        (b'{"data_version":true}', "data_version: expected an int32"),
        (b'{"data_version":1,"leaderId":1,"leaderEpoch":2147483648}', "leaderEpoch: expected an int32"),
        (VOTED + b',"votedDirectoryId":5}', "votedDirectoryId: expected the text of a uuid, found '5'"),
        (VOTED + b"}", "votedDirectoryId: expected the text of a uuid, found nothing"),
        (
            b'{"data_version":0,"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":1,"appliedOffset":0,"currentVoters":[1]}',
            "currentVoters: expected a JSON object, found int",
        ),
    ],
)
def test_damage(data: bytes, reported: str) -> None:
    with pytest.raises(BadValueError) as caught:
        read_quorum_state(data, file="quorum-state")
    assert str(caught.value).startswith("quorum-state: quorum state")
    assert reported in str(caught.value)


NODE_NEVER_VOTED = (
    b'{"data_version":1,"leaderId":-1,"leaderEpoch":0,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","more":'
)


@pytest.mark.parametrize("word", [b"[],", b'{"a":{}},', b'"ab",'])
def test_many_small_values_are_bounded(word: bytes) -> None:
    """Each takes thirty times what it has in the file."""
    for size_bytes in (1 << 20, limits.QUORUM_STATE_BYTES_MAX):
        count = (size_bytes - len(NODE_NEVER_VOTED) - 5) // len(word)
        data = NODE_NEVER_VOTED + b"[" + word * count + b"0]}"
        with measured() as peak, contextlib.nullcontext() if size_bytes < 1 << 20 else pytest.raises(LimitExceededError):
            assert read_quorum_state(data).voted_id == -1
        assert peak.bytes <= 4 * len(data) + (16 << 20)


@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("name", ["data_version", "clusterId", "currentVoters"])
def test_values_nested_just_less_than_the_parser_goes(opened: bytes, closed: bytes, name: str) -> None:
    """The values are parsed, but ``repr`` may not be able to print them."""
    head = b'{"data_version":0,"leaderId":-1,"leaderEpoch":0,"votedId":-1,"clusterId":"","appliedOffset":0,"%s":' % name.encode()
    for depth in range(sys.getrecursionlimit() - 250, sys.getrecursionlimit()):
        with pytest.raises(BadValueError):
            read_quorum_state(head + opened * depth + b"1" + closed * depth + b"}")
