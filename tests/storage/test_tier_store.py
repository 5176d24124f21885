"""Copies read as files: how many requests that takes, and that nothing is asked for twice."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import cramjam
import pytest
from manifests import FIXTURES

from formats.aiven_key import AivenObject
from formats.aiven_manifest import AivenManifest, Chunks
from formats.local_tier_name import LocalTierFile
from snaprebuild.storage import object_bytes, tier_store
from snaprebuild.storage.local_store import LocalStore
from snaprebuild.storage.object_bytes import ObjectBytes
from snaprebuild.storage.store import FileIdentity, OpenBytes
from snaprebuild.storage.tier_store import KnownCopy, TierStore


@pytest.mark.parametrize("chunk_bytes", [50, 700, 5_000, 40_000])
@pytest.mark.parametrize("is_compressible", [False, True])
def test_small_chunks_cost_no_more_requests_than_one_large_one(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, is_compressible: bool
) -> None:
    """By a reader that goes through a segment in blocks, and back to the batch that it has not had whole."""
    monkeypatch.setattr(object_bytes, "RANGE_BYTES", 64 << 10)
    monkeypatch.setattr(object_bytes, "SMALL_RANGE_BYTES", 2 << 10)
    monkeypatch.setattr(tier_store, "SMALL_RANGE_BYTES", 2 << 10)
    monkeypatch.setattr(tier_store, "RUN_BYTES", 8 << 10)
    chance = random.Random(chunk_bytes)
    size = 300_000
    data = bytes(size // 7 * 7) if is_compressible else chance.randbytes(size)
    chunks = [bytes(cramjam.zstd.compress(data[at : at + chunk_bytes])) for at in range(0, len(data), chunk_bytes)]
    stored = b"".join(chunks)
    asked: list[int] = []

    def fetch(start: int, buffer: memoryview, _: threading.Event) -> None:
        asked.append(start)
        buffer[:] = stored[start : start + len(buffer)]

    manifest = AivenManifest(Chunks(chunk_bytes, len(data), tuple(map(len, chunks))), {}, True, None, {})
    source = tier_store._ChunkedBytes(ObjectBytes("o", FileIdentity(len(stored), 0, 0, "e"), fetch, None), manifest, None, None)
    position = 0
    while position < len(data):
        buffer = bytearray(min(32 << 10, len(data) - position))
        assert source.read_into(position, memoryview(buffer)) == len(buffer)
        assert bytes(buffer) == data[position : position + len(buffer)]
        position += len(buffer)
        if position < len(data):
            position -= chance.randrange(1000)
    assert len(asked) == -(-len(stored) // (64 << 10))
    source.close()


@dataclass(frozen=True)
class CountingStore(LocalStore):
    """Notes what is asked for."""

    asked: list[tuple[str, bool]] = field(default_factory=list, compare=False)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        self.asked.append((location, True))
        return LocalStore.read_small(self, location, bytes_max)

    def open_bytes(self, location: str, identity: FileIdentity | None = None, deadline: float | None = None) -> OpenBytes:
        self.asked.append((location, identity is not None))
        return LocalStore.open_bytes(self, location, identity, deadline)


def test_a_known_copy_is_asked_for_nothing_but_its_ranges() -> None:
    root = FIXTURES / "aiven-layout" / "plain" / "store"
    manifests = sorted(root.rglob("*.rsm-manifest"))
    stems = [str(path).removesuffix(f".{AivenObject.MANIFEST}") for path in manifests]
    known = [KnownCopy(stem, path.read_bytes(), FileIdentity(1, 2, 3)) for stem, path in zip(stems, manifests, strict=True)]
    base = CountingStore()
    store, unknown = TierStore(base, None, tuple(known)), TierStore(base)
    for stem in stems:
        path = stem + LocalTierFile.PRODUCER_SNAPSHOT
        narrow = store.narrowed(path)
        assert [each.stem for each in narrow.known] == [stem]
        assert hash(narrow) != hash(store)
        found = [each.read_small(path, 1 << 20) for each in (unknown, store, narrow)]
        assert found[0] == found[1] == found[2]
        indexes, manifest = f"{stem}.{AivenObject.INDEXES}", f"{stem}.{AivenObject.MANIFEST}"
        assert base.asked == [(manifest, True), (indexes, False), (indexes, True), (indexes, True)]
        assert narrow.stored_bytes(stem + LocalTierFile.LOG) == len((root / f"{stem}.log").read_bytes())
        base.asked.clear()
    assert store.narrowed("/elsewhere.log").known == ()
    assert unknown.stored_bytes(stems[0] + LocalTierFile.LOG) is None
