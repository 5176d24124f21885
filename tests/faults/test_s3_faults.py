"""Writers against a store that fails at a request: some rows of the table; `scripts/crash-matrix` takes all of them."""

from __future__ import annotations

import pytest
from s3_faults import STORE_WRITERS, explored_store, faults_of

STRIDES = {"rebuild --out s3": 47, "tier upload s3": 47, "tier repair s3": 131}


@pytest.mark.parametrize("name", STORE_WRITERS)
def test_no_object_is_lost_or_half_and_another_run_finishes(name: str) -> None:
    figures = explored_store(name, STORE_WRITERS[name], STRIDES[name])
    assert figures.faults == []
    assert figures.states >= 4, figures


def test_what_is_wrong_is_seen() -> None:
    writer = STORE_WRITERS["rebuild --out s3"]
    before, wanted = {"bucket/a": b"1"}, {"bucket/a": b"1", "bucket/b": b"2"}
    assert not list(faults_of(writer, before, wanted, {"bucket/a": b"1", "bucket/b": b"2"}))
    wrong = faults_of(writer, before, wanted, {"bucket/b": b"", "bucket/c": b"3"})
    assert sorted(wrong) == ["bucket/a is lost", "bucket/b is half an object", "bucket/c belongs to nothing"]
    assert list(faults_of(writer, before, wanted, {"bucket/a": b"2"})) == ["bucket/a was overwritten"]
