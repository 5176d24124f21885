"""The layout of Aiven's plugin: every object that it wrote, as it reads it itself, and what must not be taken for one."""

import base64
import contextlib
import hashlib
import json
from copy import deepcopy
from typing import Any

import cramjam
import pytest
from fixture_files import AIVEN
from hypothesis import given
from hypothesis import strategies as st
from memory_peak import measured

from formats.compression import CODECS, decompress
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError, TruncatedError
from formats.limits import CHUNKS_MAX
from formats.partition.partition_metadata import uuid_from_text
from formats.remote.aiven_encryption import DataKey, PrivateKey
from formats.remote.aiven_manifest import AivenManifest, SegmentIndex, read_aiven_manifest, write_aiven_manifest
from formats.remote.object_names import AivenObject, aiven_key, parse_aiven_key

READS: dict[str, Any] = json.loads((AIVEN / "plugin-reads.json").read_text())
PRIVATE_KEY = PrivateKey.of_pem((AIVEN / "keys" / "key1.private.pem").read_bytes())
GOLDEN_NAMES = {
    SegmentIndex.OFFSET: "offset",
    SegmentIndex.TIMESTAMP: "timestamp",
    SegmentIndex.PRODUCER_SNAPSHOT: "producer_snapshot",
    SegmentIndex.LEADER_EPOCH: "leader_epoch",
    SegmentIndex.TRANSACTION: "transaction",
}


SEGMENTS = [
    pytest.param(AIVEN / variant["store"], segment, id=f"{name}-{segment['key'][-22:]}")
    for name, variant in READS["variants"].items()
    for segment in variant["segments"]
]


def reported(data: bytes) -> dict[str, object]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def data_key(manifest: AivenManifest) -> DataKey | None:
    if manifest.encryption is None:
        return None
    return PRIVATE_KEY.data_key(manifest.encryption.data_key, manifest.encryption.additional)


@pytest.mark.parametrize(("store", "segment"), SEGMENTS)
def test_segments_as_the_plugin_reads_them(store: Any, segment: dict[str, Any]) -> None:
    data = (store / f"{segment['key']}.rsm-manifest").read_bytes()
    manifest = read_aiven_manifest(data)
    assert write_aiven_manifest(manifest.document) == data
    key, log = data_key(manifest), (store / f"{segment['key']}.log").read_bytes()
    positions = manifest.chunks.positions
    assert positions[-1] == len(log)
    original = bytearray()
    for number in range(len(manifest.chunks.sizes)):
        chunk = log[positions[number] : positions[number + 1]]
        begin, end = manifest.chunks.original(number)
        if key is not None:
            chunk = key.decrypted(chunk, "chunk")
        if manifest.is_compressed:
            chunk = decompress(CODECS.index("zstd"), chunk, bytes_max=end - begin)
        assert (len(original), len(chunk)) == (begin, end - begin)
        original += chunk
    assert reported(original) == segment["golden"]["segment"]
    indexes = (store / f"{segment['key']}.indexes").read_bytes()
    for index, place in manifest.indexes.items():
        golden = segment["golden"][GOLDEN_NAMES[index]]
        if place is None:
            assert golden["error"] == "RemoteResourceNotFoundException"
            continue
        stored = indexes[place.position : place.position + place.size]
        assert reported(stored if key is None else key.decrypted(stored, "index")) == golden


@pytest.mark.parametrize(("store", "segment"), SEGMENTS)
def test_keys(store: Any, segment: dict[str, Any]) -> None:
    metadata = segment["metadata"]
    ids = [uuid_from_text(metadata[name]) for name in ("topic_id", "segment_id")]
    for kind in AivenObject:
        key = f"{segment['key']}.{kind}"
        found = parse_aiven_key(key)
        assert found is not None
        assert str(found) == key
        assert (found.topic, found.partition, found.base_offset) == (
            metadata["topic"],
            metadata["partition"],
            metadata["start_offset"],
        )
        assert aiven_key("tier/", metadata["topic"], ids[0], metadata["partition"], metadata["start_offset"], ids[1], kind) == key
        assert str(found.other(AivenObject.LOG)) == f"{segment['key']}.log"


ID = "lZ6vvmajTWKDBUTV6SQAtQ"


@pytest.mark.parametrize(
    "key",
    [
        f"-{ID}/0/{0:020d}-{ID}.log",
        f"t-{ID}/0/{0:019d}-{ID}.log",
        f"t-{ID}/{2**31}/{0:020d}-{ID}.log",
        f"t-{ID}/0/{2**63:020d}-{ID}.log",
        f"t-{ID}/0/{0:020d}-{ID[:-1]}R.log",  # the last character has four bits of nothing
        f"t-{ID}/0/{0:020d}-{ID}.log\n",
    ],
)
def test_what_is_no_key(key: str) -> None:
    assert parse_aiven_key(key) is None


def test_a_topic_may_hold_what_an_id_may() -> None:
    found = parse_aiven_key(f"a/b-{ID}-{ID}.x-{ID}/7/{12:020d}-{ID}.indexes")
    assert found is not None
    assert (found.topic, found.partition, found.base_offset, found.kind) == (f"b-{ID}-{ID}.x", 7, 12, AivenObject.INDEXES)


# ---------------------------------------------------------------------------------------------------------------- manifests

# By hand, of a plain segment in ten chunks.
PLAIN = json.loads(
    '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":100,"originalFileSize":1000,"transformedChunkSize":100,'
    '"finalTransformedChunkSize":100},"segmentIndexes":{"offset":{"position":0,"size":1},"timestamp":{"position":1,"size":1},'
    '"producerSnapshot":{"position":2,"size":1},"leaderEpoch":{"position":3,"size":1},"transaction":{"position":4,"size":1}},'
    '"compression":false}'
)


def with_value(path: str, value: object) -> dict[str, Any]:
    document = deepcopy(PLAIN)
    *above, last = path.split(".")
    place = document
    for name in above:
        place = place[name]
    place[last] = value
    return document


def test_a_manifest_by_hand() -> None:
    manifest = read_aiven_manifest(json.dumps(PLAIN).encode())
    assert manifest.chunks.sizes == (100,) * 10
    assert manifest.chunks.original(9) == (900, 1000)
    assert manifest.segment == {}
    nothing = read_aiven_manifest(json.dumps(with_value("chunkIndex.originalFileSize", 0)).encode())
    assert nothing.chunks.sizes == ()


@pytest.mark.parametrize(
    ("path", "value", "error", "message"),
    [
        ("version", "2", BadVersionError, "version of the manifest: expected '1', found '2'"),
        ("more", 1, BadValueError, "no other keys, for the plugin reads none, found 'more'"),
        ("chunkIndex.more", 1, BadValueError, "no other keys"),
        ("segmentIndexes.offset", None, BadValueError, "offset of the manifest: expected dict, found None"),
        ("compression", "false", BadValueError, "compression of the manifest"),
        ("segmentIndexes.offset.more", 1, BadValueError, "offset of the manifest: expected no other keys"),
        ("segmentIndexes.offset.size", True, BadValueError, "size of the manifest: expected int"),
        ("segmentIndexes.offset.size", 2**31, BadValueError, "size of the manifest"),
        ("chunkIndex.type", "other", BadValueError, "type of the chunk index"),
        ("chunkIndex.originalChunkSize", 0, BadValueError, "originalChunkSize of the manifest"),
        ("chunkIndex.finalTransformedChunkSize", 99, BadLengthError, "chunks: expected 1000 bytes, as the segment has, found 999"),
        ("encryption", {"dataKey": "nocolon", "aad": ""}, BadValueError, "dataKey of the manifest"),
        ("encryption", {"dataKey": "key:%", "aad": ""}, BadValueError, "encryption of the manifest: expected base64"),
    ],
)
def test_manifests_that_the_plugin_does_not_read(path: str, value: object, error: type[FormatError], message: str) -> None:
    with pytest.raises(error, match=message):
        read_aiven_manifest(json.dumps(with_value(path, value)).encode(), file="x.rsm-manifest")


@pytest.mark.parametrize("index", list(SegmentIndex))
def test_every_index_has_its_key(index: SegmentIndex) -> None:
    document = deepcopy(PLAIN)
    del document["segmentIndexes"][index]
    with pytest.raises(BadValueError, match=f"expected the key '{index}', found none"):
        read_aiven_manifest(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_manifest(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_aiven_manifest(data)


CHUNK_OF_NOTHING = {"type": "fixed", "originalChunkSize": 1, "originalFileSize": 0}
SIZES_OF_NOTHING = {"transformedChunkSize": 1, "finalTransformedChunkSize": 1}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("chunkIndex", {**CHUNK_OF_NOTHING, **SIZES_OF_NOTHING, "originalFileSize": CHUNKS_MAX}, None),
        ("chunkIndex", {**CHUNK_OF_NOTHING, **SIZES_OF_NOTHING, "originalFileSize": CHUNKS_MAX + 1}, "count of chunks"),
        ("chunkIndex", {**CHUNK_OF_NOTHING, "type": "\x7f" * (1 << 20)}, "type of the chunk index"),
        ("\x7f" * (1 << 20), 1, "no other keys"),
        ("version", "\x7f" * (1 << 20), "version of the manifest"),
        ("remoteLogSegmentMetadata", "\U0001f600" + "a" * ((1 << 21) - 1000), None),
        ("remoteLogSegmentMetadata", "\U0001f600" + "a" * (1 << 24), "at most 2097152 bytes"),
    ],
    ids=["chunks", "too-many", "type", "key", "version", "wide", "too-large"],
)
def test_a_manifest_costs_what_its_bytes_are_worth(path: str, value: object, message: str | None) -> None:
    data = json.dumps({**PLAIN, path: value}, ensure_ascii=False).encode()
    refused = pytest.raises(FormatError, match=message) if message else contextlib.nullcontext()
    with measured() as peak, refused as caught:
        chunks = read_aiven_manifest(data).chunks
        assert (len(chunks.positions), chunks.positions[-1]) == (len(chunks.sizes) + 1, chunks.file_size)
    assert peak.bytes <= 4 * len(data) + (16 << 20)
    assert caught is None or len(str(caught.value)) < 1000


@pytest.mark.full
def test_sizes_of_many_chunks_in_few_bytes() -> None:
    for count in (CHUNKS_MAX, 1 << 23):
        text = compressed(packed(count, 0, 4, [], 0)[:-4] + (4096).to_bytes(4, "big") * count, 1, count)
        refused = contextlib.nullcontext() if count == CHUNKS_MAX else pytest.raises(LimitExceededError)
        with measured() as peak, refused:
            assert set(read_aiven_manifest(text).chunks.sizes) == {4096}
        assert peak.bytes <= 4 * len(text) + (16 << 20)


def packed(count: int, base: int, width: int, sizes: list[int], last: int) -> bytes:
    """More than one chunk in the form of ``ChunkSizesBinaryCodec``."""
    head = count.to_bytes(4, "big") + base.to_bytes(4, "big", signed=True) + bytes((width,))
    return head + b"".join((size - base).to_bytes(width, "big") for size in sizes) + last.to_bytes(4, "big")


def compressed(data: bytes, chunk: int = 100, size: int = 1000) -> bytes:
    chunks = base64.b64encode(bytes(cramjam.zstd.compress(data))).decode()
    index = {"type": "variable", "originalChunkSize": chunk, "originalFileSize": size, "transformedChunks": chunks}
    return json.dumps({**PLAIN, "chunkIndex": index, "compression": True}).encode()


@given(st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=20), st.integers(0, 3))
def test_sizes_of_compressed_chunks(sizes: list[int], spare: int) -> None:
    *first, last = sizes
    base = min(first)
    width = min(4, max(1, -(-(max(first) - base).bit_length() // 8)) + spare)
    data = packed(len(sizes), base, width, first, last)
    manifest = read_aiven_manifest(compressed(data, 100, 100 * len(sizes)))
    assert manifest.chunks.sizes == tuple(sizes)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\0\0", TruncatedError),
        ((3).to_bytes(4, "big"), BadLengthError),
        (packed(10, 1, 5, [1] * 9, 1), BadLengthError),
        (packed(10, 1, 1, [1] * 9, 1) + b"\0", BadLengthError),
        (packed(10, 1, 1, [1] * 9, 1)[:-1], BadLengthError),
        (packed(9, 1, 1, [1] * 8, 1), BadLengthError),
        ((2**31 - 1).to_bytes(4, "big"), BadLengthError),
        (packed(10, -5, 1, [-5] * 9, 1), BadLengthError),
    ],
)
def test_bad_sizes_of_compressed_chunks(data: bytes, error: type[FormatError]) -> None:
    with pytest.raises(error):
        read_aiven_manifest(compressed(data))


# ---------------------------------------------------------------------------------------------------------------- encryption


def test_changed_or_foreign_objects_are_refused() -> None:
    variant = READS["variants"]["encrypted"]
    one, other = (AIVEN / variant["store"] / segment["key"] for segment in variant["segments"][:2])
    manifests = [read_aiven_manifest((path.parent / f"{path.name}.rsm-manifest").read_bytes()) for path in (one, other)]
    keys = [data_key(manifest) for manifest in manifests]
    place = manifests[0].indexes[SegmentIndex.PRODUCER_SNAPSHOT]
    assert place is not None
    stored = (one.parent / f"{one.name}.indexes").read_bytes()[place.position : place.position + place.size]
    assert keys[0] is not None
    assert keys[1] is not None
    keys[0].decrypted(stored, "index")
    with pytest.raises(BadValueError, match="index: expected the content that its tag authenticates"):
        keys[1].decrypted(stored, "index")
    with pytest.raises(BadValueError, match="index: expected the content that its tag authenticates"):
        keys[0].decrypted(stored[:-1] + bytes((stored[-1] ^ 1,)), "index")
    with pytest.raises(BadValueError, match="at least 28 encrypted bytes, found 27"):
        keys[0].decrypted(stored[:27], "index")
    assert keys[0].decrypted(b"", "index") == b""
    assert str(keys[0].key) not in repr(keys[0])


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data[:-1] + bytes((data[-1] ^ 1,)), lambda data: b"\xff" * len(data)]
)
def test_a_data_key_for_another_private_key(change: Any) -> None:
    segment = READS["variants"]["encrypted"]["segments"][0]
    path = AIVEN / READS["variants"]["encrypted"]["store"] / f"{segment['key']}.rsm-manifest"
    encryption = read_aiven_manifest(path.read_bytes()).encryption
    assert encryption is not None
    with pytest.raises(BadValueError, match="one encrypted for this private key"):
        PRIVATE_KEY.data_key(change(encryption.data_key), encryption.additional)


def test_what_is_no_private_key() -> None:
    with pytest.raises(BadValueError, match="an RSA key in PEM without a password"):
        PrivateKey.of_pem((AIVEN / "keys" / "key1.public.pem").read_bytes())
