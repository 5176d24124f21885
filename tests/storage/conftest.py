"""An object store that fails on demand, and whose clients do not wait before they try again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faulty_store import FaultyStore, faulty_store

from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3 import store as s3


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(s3_requests, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(s3, "_probed", set())
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    with faulty_store() as store:
        yield store
