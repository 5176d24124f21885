"""The image of the bundled clusters against what Kafka's own classes made of them."""

import json
import os
import shutil
from pathlib import Path

import pytest
from cluster_images import as_in_manifest
from manifests import CLUSTER, FIXTURES
from sentences import CHANGED_WHILE_READ

from formats.errors import BadValueError
from snaprebuild.cluster.metadata.image_reader import ImageAt, image_at, read_image, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog, open_metadata_log
from snaprebuild.cluster.metadata.proof import read_headers
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.snapshots.source.second_look import LISTINGS_MAX

EXPECTED = {
    path.stem: {key: value for key, value in json.loads(path.read_text()).items() if key != "checkpoint_used"}
    for path in sorted((CLUSTER / "expected").glob("image-*.json"))
}


@pytest.mark.parametrize("node", ["node1", "node2", "node3"])
def test_final_image_of_every_node(node: str) -> None:
    """Each begins with the newest checkpoint of its own."""
    found = read_image(str(CLUSTER / node))
    assert as_in_manifest(found.fold.image()) == EXPECTED["image-final"]
    assert json.loads((CLUSTER / "manifest.json").read_text())["final_image"]["topics"] == EXPECTED["image-final"]["topics"]
    assert found.checkpoint is not None
    assert found.checkpoint.end_offset == {"node1": 315, "node2": 315, "node3": 304}[node]
    assert (found.fold.faults, found.bad_checkpoints, found.walk.torn_tail) == ([], (), None)


def test_images_at_earlier_offsets() -> None:
    """On every node that reaches back so far."""
    read = 0
    for expected in EXPECTED.values():
        for node in ("node1", "node2", "node3"):
            if node == "node2" and expected["last_offset"] < 233:
                with pytest.raises(UsageError, match=f"nothing is known at offset {expected['last_offset']}"):
                    read_image(str(CLUSTER / node), expected["last_offset"])
                continue
            assert as_in_manifest(read_image(str(CLUSTER / node), expected["last_offset"]).fold.image()) == expected
            read += 1
    assert read >= 10


def test_every_checkpoint_gives_what_the_log_below_it_gives(tmp_path: Path) -> None:
    """Nodes 1 and 3 and ``kraft-metadata`` have their logs from offset 0, and checkpoints along them."""
    for source in (CLUSTER / "node1", CLUSTER / "node3", FIXTURES / "kraft-metadata" / "logs"):
        directory = Path(shutil.copytree(source / METADATA_DIRECTORY, tmp_path / source.parent.name / source.name))
        checkpoints = read_image(str(directory)).log.checkpoints
        assert len(checkpoints) >= 3
        images = {each.end_offset: read_image(str(directory), each.end_offset - 1) for each in checkpoints if each.end_offset}
        assert [each.checkpoint.end_offset if each.checkpoint else None for each in images.values()] == list(images)
        for path in directory.glob("*.checkpoint"):
            path.unlink()
        for end_offset, image in images.items():
            from_log = read_image(str(directory), end_offset - 1)
            assert from_log.checkpoint is None
            assert as_in_manifest(from_log.fold.image()) == as_in_manifest(image.fold.image())


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(CLUSTER / "node2" / METADATA_DIRECTORY, tmp_path / METADATA_DIRECTORY))
    newest = directory / "00000000000000000315-0000000004.checkpoint"
    newest.write_bytes(newest.read_bytes()[:-10])
    found = read_image(str(tmp_path))
    assert as_in_manifest(found.fold.image()) == EXPECTED["image-final"]
    assert found.checkpoint is not None
    assert found.checkpoint.end_offset == 234
    assert [checkpoint.path for checkpoint, _ in found.bad_checkpoints] == [str(newest)]
    for path in directory.glob("*.checkpoint"):
        path.unlink()
    with pytest.raises(BadValueError, match="first offset of the metadata log: expected at most 0, found 234"):
        read_image(str(tmp_path))


def test_files_that_go_while_they_are_read(tmp_path: Path) -> None:
    """A live controller deletes files: the directory is listed again, but not for ever."""
    directory = Path(shutil.copytree(CLUSTER / "node1" / METADATA_DIRECTORY, tmp_path / METADATA_DIRECTORY))
    newest = max(directory.glob("*.checkpoint"))
    offset, _, epoch = newest.stem.partition("-")
    for above in range(1, LISTINGS_MAX - 2):  # one more than may go, with the four that are there
        shutil.copyfile(newest, directory / f"{int(offset) + above:020d}-{epoch}.checkpoint")
    listings: list[MetadataLog] = []

    def work(log: MetadataLog) -> ImageAt:
        listings.append(log)
        if log.checkpoints:
            Path(log.checkpoints[-1].path).unlink()
        return image_at(log)

    with pytest.raises(ReadFailedError, match="cannot be opened: No such file or directory"):
        with_fresh_listing(str(directory), None, work)
    assert [len(each.checkpoints) for each in listings] == list(range(LISTINGS_MAX + 1, 1, -1))
    found = with_fresh_listing(str(directory), None, lambda log: work(log) if len(log.checkpoints) == 1 else image_at(log))
    assert found.checkpoint is None
    assert as_in_manifest(found.fold.image()) == EXPECTED["image-final"]


def test_a_checkpoint_that_shrinks_behind_the_look_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No controller does that; a copy that is under way may."""
    shutil.copytree(CLUSTER / "node2" / METADATA_DIRECTORY, tmp_path / METADATA_DIRECTORY)
    log = open_metadata_log(str(tmp_path))
    look = MetadataLog.newest_valid_checkpoint

    def and_shrinks(seen: MetadataLog) -> MetadataCheckpoint | None:
        checkpoint = look(seen)
        assert checkpoint is not None
        os.truncate(checkpoint.path, 200)
        return checkpoint

    monkeypatch.setattr(MetadataLog, "newest_valid_checkpoint", and_shrinks)
    with pytest.raises(ReadFailedError, match=CHANGED_WHILE_READ) as raised:
        read_headers(log)
    assert raised.value.path == log.checkpoints[-1].path


def test_the_log_ends_before() -> None:
    with pytest.raises(UsageError, match="ends before offset 348: its last one is 347"):
        read_image(str(CLUSTER / "node1"), 348)
