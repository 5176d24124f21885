"""Large objects at a real store. What a store may do otherwise: ``test_s3_parts``."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from object_store import ObjectStore, split

from snaprebuild.errors import AlreadyExistsError, RefusedError
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.multipart import S3LargeObjects
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings

pytestmark = pytest.mark.s3

PART_BYTES = 5 << 20
DATA = random.Random(6).randbytes(2 * PART_BYTES + 1000)


class Place:
    """Where a large object goes to, and the client that sends it."""

    def __init__(self, run: str, location: str, path: Path) -> None:
        settings = S3Settings(run=run)
        self.large = S3LargeObjects(S3Store(settings), PART_BYTES)
        self.location = location
        self.names: list[str] = []
        self._path = path
        for attempts in (1, s3_requests.ATTEMPTS):
            events = s3_requests.client_of(settings, attempts).meta.events
            events.register("before-call.s3", lambda model, **_: self.names.append(model.name))

    def on(self, event: str, operation: str, handler: Callable[..., Any]) -> None:
        for attempts in (1, s3_requests.ATTEMPTS):
            s3_requests.client_of(self.large.store.settings, attempts).meta.events.register(f"{event}.s3.{operation}", handler)

    def create(self) -> None:
        with SegmentFile(str(self._path)) as source:
            self.large.create(self.location, source)

    def holds(self) -> bool | None:
        with SegmentFile(str(self._path)) as source:
            return self.large.holds(self.location, source)


@pytest.fixture
def place_of(object_store: ObjectStore, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], Place]:
    (tmp_path / "log").write_bytes(DATA)
    location = f"s3://{object_store.bucket()}/a/large.log"
    names = iter(range(10))
    return lambda: Place(f"{request.node.name}-{next(names)}", location, tmp_path / "log")


def uploads(store: ObjectStore, location: str) -> list[Any]:
    bucket, _ = split(location)
    return list(store.client.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def test_created_once(object_store: ObjectStore, place_of: Callable[[], Place]) -> None:
    place = place_of()
    place.large.prepare_writes(place.location.rpartition("/")[0], len(DATA))
    assert place.holds() is None
    place.create()
    assert object_store.get(place.location) == DATA
    assert place.holds() is True
    with pytest.raises(AlreadyExistsError):
        place.create()
    assert place.names.count("UploadPart") == 4, "three, and the one of the probe"
    assert set(object_store.files(place.location.rpartition("/")[0])) == {"large.log"}
    assert uploads(object_store, place.location) == []


def test_a_store_that_ignores_the_condition_is_refused(object_store: ObjectStore, place_of: Callable[[], Place]) -> None:
    place = place_of()
    directory = place.location.rpartition("/")[0]

    def ignore(params: Any, **_: Any) -> None:
        del params["headers"]["If-None-Match"]

    place.on("before-call", "CompleteMultipartUpload", ignore)
    with pytest.raises(RefusedError, match="ignores If-None-Match where a large object is completed"):
        place.large.prepare_writes(directory, len(DATA))
    place.large.prepare_writes(directory, PART_BYTES)
    assert object_store.files(directory) == {}
