"""Copies read as files: how many requests that takes, and that nothing is asked for twice."""

import os
import random
from dataclasses import dataclass, field

import cramjam
import msgspec
import pytest
from budgets import by_turns
from manifests import FIXTURES

from formats.log.batch_headers import BytesSegment
from formats.remote.aiven_manifest import AivenManifest, Chunks
from formats.remote.object_names import AivenObject, LocalTierFile
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.remote import store as tier_store
from snaprebuild.storage.remote.store import CachedManifest, TierStore
from snaprebuild.storage.store import FileIdentity, OpenBytes


class NotedBytes(BytesSegment, frozen=True):
    """An object in memory; notes which ranges are read."""

    asked: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        self.asked.append((position_bytes, len(buffer)))
        return BytesSegment.read_into(self, position_bytes, buffer)


@pytest.mark.parametrize("chunk_bytes", by_turns([700, 50, 40_000, 5_000]))
@pytest.mark.parametrize("is_compressible", [False, True])
def test_small_chunks_are_read_one_behind_the_other(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, is_compressible: bool
) -> None:
    """For a reader that goes through a segment in blocks, and back to the batch that it has not had whole.

    Each reading begins where the last one ended, and is too large for a small range: so it costs no more than one large chunk.
    """
    small = 2 << 10
    monkeypatch.setattr(tier_store, "SMALL_RANGE_BYTES", small)
    monkeypatch.setattr(tier_store, "RUN_BYTES", 8 << 10)
    chance = random.Random(chunk_bytes)
    size = 300_000
    data = bytes(size // 7 * 7) if is_compressible else chance.randbytes(size)
    chunks = [bytes(cramjam.zstd.compress(data[at : at + chunk_bytes])) for at in range(0, len(data), chunk_bytes)]
    stored = NotedBytes(b"".join(chunks))
    manifest = AivenManifest(Chunks(chunk_bytes, len(data), tuple(map(len, chunks))), {}, True, None, {})
    source = tier_store._ChunkedBytes(stored, manifest, None, None)
    position = 0
    while position < len(data):
        buffer = bytearray(min(32 << 10, len(data) - position))
        assert source.read_into(position, memoryview(buffer)) == len(buffer)
        assert bytes(buffer) == data[position : position + len(buffer)]
        position += len(buffer)
        if position < len(data):
            position -= chance.randrange(1000)
    reached = 0
    for place, count in stored.asked:
        assert place == reached
        reached += count
        assert count > small or reached == len(stored.data)
    assert reached == len(stored.data)


@dataclass(frozen=True)
class CountingStore(LocalStore):
    """Notes what is asked for."""

    asked: list[tuple[str, bool]] = field(default_factory=list, compare=False)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        self.asked.append((location, True))
        return LocalStore.read_small(self, location, bytes_max)

    def open_bytes(
        self, location: str, identity: FileIdentity | None = None, deadline: float | None = None, may_grow: bool = False
    ) -> OpenBytes:
        self.asked.append((location, identity is not None))
        return LocalStore.open_bytes(self, location, identity, deadline, may_grow)


def test_a_known_copy_is_asked_for_nothing_but_its_ranges() -> None:
    root = FIXTURES / "aiven-layout" / "plain" / "store"
    manifests = sorted(root.rglob("*.rsm-manifest"))
    stems = [str(path).removesuffix(f".{AivenObject.MANIFEST}") for path in manifests]
    indexes_of = [FileIdentity.of(os.stat(f"{stem}.{AivenObject.INDEXES}")) for stem in stems]
    known = [CachedManifest(stem, path.read_bytes(), each) for stem, path, each in zip(stems, manifests, indexes_of, strict=True)]
    base = CountingStore()
    store, unknown = TierStore(base, None, tuple(known)), TierStore(base)
    for stem in stems:
        path = stem + LocalTierFile.PRODUCER_SNAPSHOT
        narrow = store.for_file(path)
        assert [each.stem for each in narrow.manifests] == [stem]
        assert hash(narrow) != hash(store)
        found = [each.read_small(path, 1 << 20) for each in (unknown, store, narrow)]
        assert found[0] == found[1] == found[2]
        indexes, manifest = f"{stem}.{AivenObject.INDEXES}", f"{stem}.{AivenObject.MANIFEST}"
        assert base.asked == [(manifest, True), (indexes, False), (indexes, True), (indexes, True)]
        assert narrow.stored_bytes(stem + LocalTierFile.LOG) == len((root / f"{stem}.log").read_bytes())
        base.asked.clear()
    assert store.for_file("/elsewhere.log").manifests == ()
    assert unknown.stored_bytes(stems[0] + LocalTierFile.LOG) is None
