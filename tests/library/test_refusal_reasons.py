"""Each refusal of the library has a reason, and a segment that retention deletes meanwhile is never one without leader epochs."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command import in_json
from log_dirs import remove_snapshots
from manifests import FIXTURES, REPOSITORY
from stopped_broker import made

from snaprebuild import (
    LogDir,
    Partition,
    RefusalReason,
    ReplayOptions,
    SnapshotRefusedError,
    UploadRefusalReason,
    UploadRefusedError,
    UsageError,
    ensure_snapshot,
    prepare_upload,
    validate_snapshot,
)

EARLY = ReplayOptions(as_of_ms=0)


def log_of(directory: Path, base: int) -> Path:
    return directory / f"{base:020d}.log"


def _deleted_by_retention(directory: Path) -> None:
    """Deletes a segment, as retention does: the log start moves up, the files of the segment and its leader epochs go."""
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 10\n")
    for path in (*directory.glob(f"{0:020d}.*"), directory / f"{10:020d}.snapshot"):
        path.unlink()


def _renamed(directory: Path) -> None:
    directory.rename(directory.with_name(f"{directory.name}.{'0' * 32}-delete"))


def _damaged(directory: Path) -> None:
    data = bytearray(log_of(directory, 0).read_bytes())
    data[8] ^= 0x40  # the length of the first batch
    log_of(directory, 0).write_bytes(data)


def _bad_checksum(directory: Path) -> None:
    data = bytearray(log_of(directory, 0).read_bytes())
    data[17] ^= 1
    log_of(directory, 0).write_bytes(data)


def _nothing(directory: Path) -> None:
    remove_snapshots(directory)


BEFORE: dict[str, tuple[Callable[[Path], None], dict[str, object], RefusalReason]] = {
    "segment deleted": (_deleted_by_retention, {}, RefusalReason.BELOW_LOG_START),
    "damaged": (_damaged, {}, RefusalReason.DAMAGED),
    "bad checksum": (_bad_checksum, {}, RefusalReason.DAMAGED),
    "no time": (_nothing, {"timeout_s": 0}, RefusalReason.DEADLINE),
    "no bytes": (_nothing, {"max_bytes": 0}, RefusalReason.LIMIT),
}


@pytest.mark.parametrize("case", BEFORE)
def test_reasons_of_one_call(case: str, tmp_path: Path) -> None:
    change, limits, reason = BEFORE[case]
    directory = made(tmp_path)
    change(directory)
    with pytest.raises(SnapshotRefusedError) as refused:
        ensure_snapshot(directory, 10, options=EARLY, **limits)  # type: ignore[arg-type]
    assert refused.value.reason is reason


def test_a_directory_that_its_broker_deletes(tmp_path: Path) -> None:
    directory = made(tmp_path)
    _renamed(directory)
    (gone,) = tmp_path.rglob("*-delete")
    for call in (
        lambda: ensure_snapshot(gone, 10),
        lambda: Partition(gone),
        lambda: validate_snapshot(log_of(gone, 0), b""),
    ):
        with pytest.raises(SnapshotRefusedError) as refused:
            call()
        assert refused.value.reason is RefusalReason.GONE
    with pytest.raises(UploadRefusedError) as upload:
        prepare_upload(log_of(gone, 0))
    assert upload.value.reason == "gone"


def test_the_file_cannot_be_written(tmp_path: Path) -> None:
    directory = made(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"{10:020d}.snapshot").write_bytes(b"another")
    for out in (directory, tmp_path / "out"):
        with pytest.raises(SnapshotRefusedError) as refused:
            ensure_snapshot(directory, 10, options=EARLY, out=out)
        assert refused.value.reason is RefusalReason.OUTPUT


@pytest.mark.parametrize(("change", "reason"), [(_deleted_by_retention, "below-log-start"), (_renamed, "gone")])
def test_deleted_after_it_was_listed(change: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    directory = made(tmp_path)
    with Partition(directory, EARLY) as partition:
        segment = partition.rolled_segments()[0]
        change(directory)
        with pytest.raises(UploadRefusedError) as upload:
            segment.prepare_upload(high_watermark=30)
        with pytest.raises(SnapshotRefusedError) as refused:
            segment.snapshot()
    assert (upload.value.reason, refused.value.reason) == (reason, reason)


@pytest.mark.parametrize("kept", ["leader-epoch-checkpoint", "index"])
def test_the_log_goes_first(kept: str, tmp_path: Path) -> None:
    """Between the rename of a segment and the removal of its epochs each order of events is the same refusal."""
    directory = made(tmp_path)
    with Partition(directory, EARLY) as partition:
        segment = partition.rolled_segments()[0]
        log_of(directory, 0).unlink()
        if kept != "leader-epoch-checkpoint":
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 10\n")
        with pytest.raises(UploadRefusedError) as upload:
            segment.prepare_upload(high_watermark=30)
    assert upload.value.reason == "below-log-start"


def reasons_of(partition: Partition) -> set[RefusalReason]:
    """The reasons for which the snapshots of its segments are refused."""
    reasons = set()
    for segment in partition:
        try:
            segment.snapshot()
        except SnapshotRefusedError as error:
            reasons.add(error.reason)
    return reasons


@pytest.mark.parametrize("fixture", ["kafka27-compacted", "kafka4-compacted", "txn-state"])
def test_a_topic_that_is_never_uploaded_is_no_damage(fixture: str) -> None:
    """The cleaner removes batches, so that no log proves the snapshots. An uploader forgets the partition, and stops nowhere."""
    reasons = set()
    for partition in LogDir(FIXTURES / fixture):
        reasons |= reasons_of(partition)
        for segment in partition:
            with pytest.raises(UploadRefusedError) as upload:
                segment.prepare_upload()
            assert upload.value.reason is UploadRefusalReason.NEVER_TIERED
    assert reasons == {RefusalReason.NEVER_TIERED}


DIRECTORIES = sorted(each for each in (FIXTURES / "damaged").iterdir() if each.is_dir() and any(each.glob("**/*-[0-9]/*.log")))
IN_QUICK_TIER = ("logs",)


@pytest.mark.parametrize(
    "directory",
    [pytest.param(each, id=each.name, marks=() if each.name in IN_QUICK_TIER else pytest.mark.full) for each in DIRECTORIES],
)
def test_verify_shows_the_place_of_each_damage(directory: Path) -> None:
    """The guide's table promises it for the reason ``damaged``."""
    damaged = [each.path for each in LogDir(directory) if RefusalReason.DAMAGED in reasons_of(each)]
    for path in damaged:
        verified = in_json("verify", path)
        assert verified.exit_code != 0
        assert any(each["path"].startswith(path) and each["severity"] != "note" for each in verified.document["findings"])


def test_no_segment_of_that_name_is_a_usage_error(tmp_path: Path) -> None:
    """Above the log start an offset that is no boundary is a mistake of the caller."""
    directory = made(tmp_path)
    for call in (
        lambda: ensure_snapshot(directory, 11),
        lambda: ensure_snapshot(directory, 0),
        lambda: prepare_upload(log_of(directory, 1)),
    ):
        with pytest.raises(UsageError):
            call()


OF_TIER_UPLOAD = {
    *(UploadRefusalReason.ABOVE_TRUSTED_OFFSET, UploadRefusalReason.CLAIM_LOST, UploadRefusalReason.DELETED),
    *(UploadRefusalReason.ENCRYPTED_STORE, UploadRefusalReason.GAP, UploadRefusalReason.NOT_IN_CLUSTER),
    *(UploadRefusalReason.OTHER_STORE, UploadRefusalReason.STALE_BROKER_EPOCH, UploadRefusalReason.UNKNOWN_BROKER_EPOCH),
}
"""Reasons of the command alone: the library knows neither the store nor the cluster."""


def rows_of(page: str) -> list[str]:
    """The first cells of the rows of all tables of a guide, the reasons among them."""
    text = (REPOSITORY / "docs" / "guides" / page).read_text()
    cells = re.findall(r"^\| (`[^|]*`) \| .+ \|$", text, re.MULTILINE)
    return [reason for cell in cells for reason in re.findall("`([a-z-]+)`", cell)]


def test_the_guide_says_for_each_reason_what_an_uploader_does() -> None:
    """Once: one word means the same in both enumerations."""
    listed = rows_of("uploader.md")
    assert sorted(listed) == sorted({*map(str, RefusalReason), *map(str, set(UploadRefusalReason) - OF_TIER_UPLOAD)})
    reference = (REPOSITORY / "docs" / "reference" / "api.md").read_text()
    for reason in UploadRefusalReason:
        assert f"* `{reason.name}` = `'{reason}'`: " in reference, "the guide to uploads points there"


def test_each_reason_is_raised_where_the_guide_says() -> None:
    """The members that modules name, which are the only ones that can be raised."""
    upload = REPOSITORY / "snaprebuild" / "tier" / "upload"
    named = {path.stem: set(re.findall(r"UploadRefusalReason\.([A-Z_]+)", path.read_text())) for path in upload.glob("*.py")}
    of_library = named["prepare"] | named["checks"]
    assert {reason.name for reason in UploadRefusalReason} == set().union(*named.values())
    assert {reason.name for reason in OF_TIER_UPLOAD} == set().union(*named.values()) - of_library
