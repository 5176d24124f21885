"""Any bytes and any text: each reader gives a value that is written and read back as itself, or refuses them with an error of the tree."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_file_writers import write_meta_properties, write_offset_checkpoint, write_properties
from replication_codec import read_replication_message, write_replication_message

from formats.broker.broker_files import (
    CleanShutdown,
    Property,
    read_clean_shutdown,
    read_meta_properties,
    read_properties,
)
from formats.errors import FormatError
from formats.message_schema import load_schemas
from formats.metadata.framed_message import by_api_key, read_framed_message, write_framed_message
from formats.metadata.replication_messages import ReplicationMessage
from formats.partition.checkpoint_file import (
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
)
from formats.partition.file_kind import kind_of_content, kind_of_name
from formats.partition.file_names import DirectoryForm, parse_file_name, parse_partition_dir_name
from formats.partition.partition_metadata import read_partition_metadata, write_partition_metadata

TEXT = st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
SCHEMAS = by_api_key(load_schemas("cluster-metadata"))


@dataclass(frozen=True)
class Format:
    """A reader, its writer, and bytes that are nearly right."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    nearly: st.SearchStrategy[bytes]


def joined(lines: st.SearchStrategy[str], *first: str) -> st.SearchStrategy[bytes]:
    return st.lists(lines).map(lambda found: "\n".join([*first, *found]).encode())


def written_framed(value: tuple[Any, int, Any]) -> bytes:
    schema, version, message = value
    return write_framed_message(schema, message, version)


CHECKPOINT_LINES = joined(st.text(alphabet="0123 -+ax\t\r\u00a0٣_", max_size=12), "0", "1")
PROPERTIES = st.text(alphabet="ab =:#!\\\nu0049\r\t\f\xe9", max_size=40).map(lambda text: text.encode("latin-1"))
META_LINES = st.sampled_from(["version=1", "version=0", "node.id=1", "broker.id=x", "cluster.id=c", "directory.id="])
UUIDS = st.text(alphabet="Az0-_=+ ", min_size=20, max_size=25)
FORMATS = {
    "offset checkpoint": Format(read_offset_checkpoint, write_offset_checkpoint, CHECKPOINT_LINES),
    "leader epoch checkpoint": Format(read_leader_epoch_checkpoint, write_leader_epoch_checkpoint, CHECKPOINT_LINES),
    "meta.properties": Format(read_meta_properties, write_meta_properties, PROPERTIES | joined(META_LINES)),
    "partition.metadata": Format(
        read_partition_metadata,
        write_partition_metadata,
        st.builds("version: {}\ntopic_id: {}".format, st.text(max_size=3), UUIDS).map(str.encode),
    ),
    "metadata record": Format(
        partial(read_framed_message, SCHEMAS),
        written_framed,
        st.builds(bytes.__add__, st.sampled_from((b"\1", b"\1\5\0", b"\1\0\3")), st.binary(max_size=300)),
    ),
    **{
        f"{kind} of version {version}": Format(
            partial(read_replication_message, kind, version=version),
            partial(write_replication_message, kind, version=version),
            st.binary(max_size=200),
        )
        for kind in ReplicationMessage
        for version in (3, 13, 17)
    },
}


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    it = FORMATS[name]
    try:
        value = it.read(data.draw(it.nearly | st.binary() | TEXT))
    except FormatError:
        return
    assert it.read(it.write(value)) == value


@given(PROPERTIES | st.binary())
def test_properties_are_read_or_refused(data: bytes) -> None:
    """Lines change when they are written anew; keys and values do not."""

    def pairs(entries: tuple[Property, ...]) -> list[tuple[str, str]]:
        return [(entry.key, entry.value) for entry in entries]

    try:
        properties = read_properties(data)
    except FormatError:
        return
    assert pairs(read_properties(write_properties(properties)).entries) == pairs(properties.entries)


@given(st.binary(max_size=200) | TEXT)
def test_what_is_never_refused(data: bytes) -> None:
    assert isinstance(read_clean_shutdown(data), CleanShutdown)
    kind_of_content(data, len(data))


@given(
    st.text(max_size=300)
    | st.builds(str.__add__, st.text(alphabet="0123456789-.", max_size=24), st.sampled_from([".log", ".snapshot", ".swap"]))
)
def test_names_are_read_or_unknown(name: str) -> None:
    kind_of_name(name)
    file = parse_file_name(name)
    if file is not None and file.offset is not None and name == name[:20] + file.kind.value:
        assert f"{file.offset:020d}{file.kind.value}" == name
    directory = parse_partition_dir_name(name)
    if directory is not None and directory.form is DirectoryForm.PLAIN:
        assert f"{directory.topic}-{directory.partition}" == name
