"""Writers against a store that fails at a request: some rows of the table; `scripts/faults/crash_matrix.py` takes all of them."""

import json

import pytest
from command import snaprebuild
from every_verb import LONG_AGO
from faulty_store import faulty_store
from s3_faults import BUCKET, STORE_WRITERS, diseased, explored_store, faults_of, impatient

STRIDES = {"rebuild --out s3": 47, "tier upload s3": 47, "tier repair s3": 262}


@pytest.mark.full
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


@pytest.mark.parametrize(
    "words", [("tier", "inventory"), ("tier", "audit"), ("tier", "repair", "--allow-unverified", "--dry-run")], ids=" ".join
)
def test_a_manifest_that_the_store_refuses_to_hand_out_is_not_damaged(words: tuple[str, ...]) -> None:
    """It says nothing of the copy, so the exit code is that of storage, and nothing is reported as damage that was not read."""
    with impatient(), faulty_store() as store:
        store.objects.update(diseased())
        refused = next(key for key in sorted(store.objects) if key.endswith(".rsm-manifest"))
        store.choose = lambda method, path, _: "403" if method == "GET" and path.endswith(refused.partition("/")[2]) else ""
        verb, options = words[:2], words[2:]
        clock = () if verb == ("tier", "inventory") else LONG_AGO
        place = ("--s3-endpoint-url", store.endpoint, "--set", "s3_path_style=true")
        run = snaprebuild(*verb, f"s3://{BUCKET}", *clock, *options, *place, "--output", "json")
    assert run.exit_code == 5
    findings = json.loads(run.stdout)["findings"]
    reported = [each for each in findings if each["severity"] in ("damaged", "storage") and "403" in each["message"]]
    assert [each["code"] for each in reported] == ["storage-failed"]
