"""Errors about text files of a log directory: a name there may lead to a file whose text nobody who reads the error may see."""

from collections.abc import Callable

import pytest

from formats.broker.broker_files import read_clean_shutdown, read_meta_properties
from formats.errors import FormatError
from formats.metadata.quorum_state import read_quorum_state
from formats.partition.checkpoint_file import read_leader_epoch_checkpoint, read_offset_checkpoint
from formats.partition.partition_metadata import read_partition_metadata
from formats.text_lines import shown_number

SECRET = "hunter2:correct horse"
READERS: dict[str, Callable[[bytes], object]] = {
    "offset checkpoint": read_offset_checkpoint,
    "leader epoch checkpoint": read_leader_epoch_checkpoint,
    "partition.metadata": read_partition_metadata,
    "meta.properties": read_meta_properties,
    "clean shutdown file": read_clean_shutdown,
    "quorum-state": read_quorum_state,
}
PLACES = (
    "{}",
    "{}\n{}\n{}\n",
    "0\n{}\n",
    "0\n1\n{}\n",
    "version: {}\n",
    "version: 0\ntopic_id: {}\n",
    "version: 0\n{}\n",
    "version={}\n",
    "version=1\nnode.id={}\n",
    "version=1\nnode.id=1\ncluster.id=a\ndirectory.id={}\n",
    '"{}"',
)


@pytest.mark.parametrize("kind", READERS)
def test_text_that_is_not_of_kafka_is_not_quoted(kind: str) -> None:
    errors = []
    for place in PLACES:
        try:
            READERS[kind](place.format(*(SECRET,) * 3).encode())
        except FormatError as error:
            errors.append(str(error))
    assert all("hunter2" not in each for each in errors)
    assert errors or kind == "clean shutdown file"


@pytest.mark.parametrize(
    ("text", "quoted"), [("1", "'1'"), ("-1 5", "'-1 5'"), ("a 0 1", "a text of 5 characters"), ("", "a text of 0 characters")]
)
def test_numbers_are_quoted(text: str, quoted: str) -> None:
    assert shown_number(text) == quoted
