"""Clients of a store that fails on demand."""

from faulty_store import FaultyStore

from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

PLACE, NAME = "s3://bucket/t-0", "00000000000000000009.snapshot"
KEY = f"bucket/t-0/{NAME}"
LOCATION = f"{PLACE}/{NAME}"


def store_of(faulty: FaultyStore, **settings: object) -> S3Store:
    return S3Store(S3Settings(endpoint_url=faulty.endpoint, path_style=True, **settings))  # type: ignore[arg-type]


def read(store: S3Store, location: str, identity: FileIdentity | None = None, block: int = 4 << 20) -> bytes:
    with store.open_bytes(location, identity) as source:
        data = bytearray(source.size_bytes)
        position = 0
        while position < len(data):
            position += source.read_into(position, memoryview(data)[position : position + block])
    return bytes(data)
