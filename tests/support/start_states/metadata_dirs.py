"""The directory of the metadata log, outside of log.dirs, and meta.properties without a partition next to it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from .building import METADATA, REBORN, log_dir, start_state

IN_META: Mapping[str, str] = {"metadata.log.dir": "meta"}
"""Below the directory of the state."""
GARBAGE = "version=one\nnode.id=\\u00zz\n"


@start_state(settings=IN_META)
def metadata_dir(base: Path) -> None:
    """The metadata log is in metadata.log.dir, which is not one of log.dirs."""
    log_dir(base)
    log_dir(base, METADATA, name="meta")


@start_state(settings=IN_META)
def metadata_dir_without_a_log(base: Path) -> None:
    """The metadata.log.dir was formatted, and has no metadata log yet."""
    log_dir(base)
    _only_meta_properties(base)


@start_state(settings=IN_META)
def metadata_dir_missing(base: Path) -> None:
    """The metadata.log.dir is not there."""
    log_dir(base)


@start_state(settings=IN_META)
def metadata_dir_empty(base: Path) -> None:
    """The metadata.log.dir has no file: its disk is not mounted."""
    log_dir(base)
    (base / "meta").mkdir()


@start_state(settings=IN_META)
def metadata_dir_is_a_file(base: Path) -> None:
    """The metadata.log.dir is a file."""
    log_dir(base)
    (base / "meta").write_text("")


@start_state(settings=IN_META)
def metadata_dir_of_another_node(base: Path) -> None:
    """The metadata.log.dir is that of another node."""
    log_dir(base)
    path = _only_meta_properties(base)
    path.write_text(path.read_text().replace("node.id=1", "node.id=2"))


@start_state(settings=IN_META)
def metadata_dir_of_another_cluster(base: Path) -> None:
    """The metadata.log.dir is that of a node of another cluster."""
    log_dir(base)
    path = _only_meta_properties(base)
    path.write_text(path.read_text().replace("cluster.id=P", "cluster.id=Q"))


@start_state(settings=IN_META)
def metadata_dir_with_the_same_directory_id(base: Path) -> None:
    """The metadata.log.dir has the directory id of the log directory."""
    root = log_dir(base)
    _only_meta_properties(base).write_bytes((root / "meta.properties").read_bytes())


@start_state(settings=IN_META)
def metadata_dir_with_empty_meta_properties(base: Path) -> None:
    """The meta.properties in metadata.log.dir has 0 bytes."""
    log_dir(base)
    _only_meta_properties(base).write_bytes(b"")


@start_state(settings=IN_META)
def metadata_dir_with_garbage(base: Path) -> None:
    """The meta.properties in metadata.log.dir cannot be parsed."""
    log_dir(base)
    _only_meta_properties(base).write_text(GARBAGE)


@start_state(log_dirs=("data", "d2"))
def log_dir_without_partitions_and_empty_meta_properties(base: Path) -> None:
    """A second log directory has no partition, and a meta.properties of 0 bytes."""
    log_dir(base)
    (base / "d2").mkdir()
    (base / "d2" / "meta.properties").write_bytes(b"")


@start_state(log_dirs=("data", "d2"))
def log_dir_without_partitions_and_garbage_as_meta_properties(base: Path) -> None:
    """A second log directory has no partition, and a meta.properties that cannot be parsed."""
    log_dir(base)
    (base / "d2").mkdir()
    (base / "d2" / "meta.properties").write_text(GARBAGE)


@start_state(log_dirs=("d1", "d2"))
def second_log_dir_with_garbage_as_meta_properties(base: Path) -> None:
    """The meta.properties of the second log directory, which has a partition, cannot be parsed."""
    log_dir(base, name="d1")
    (log_dir(base, REBORN, name="d2") / "meta.properties").write_text(GARBAGE)


@start_state(log_dirs=("d1", "d2"))
def second_log_dir_with_empty_meta_properties(base: Path) -> None:
    """The meta.properties of the second log directory, which has a partition, has 0 bytes."""
    log_dir(base, name="d1")
    (log_dir(base, REBORN, name="d2") / "meta.properties").write_bytes(b"")


@start_state(log_dirs=("d1", "d2"))
def second_log_dir_without_meta_properties(base: Path) -> None:
    """The meta.properties of the second log directory, which has a partition, is gone."""
    log_dir(base, name="d1")
    (log_dir(base, REBORN, name="d2") / "meta.properties").unlink()


@start_state(log_dirs=("d1", "d2"))
def second_log_dir_with_a_directory_as_meta_properties(base: Path) -> None:
    """The meta.properties of the second log directory, which has a partition, is a directory."""
    log_dir(base, name="d1")
    path = log_dir(base, REBORN, name="d2") / "meta.properties"
    path.unlink()
    path.mkdir()


@start_state(log_dirs=("d1", "d2"))
def second_log_dir_with_a_wrong_directory_id(base: Path) -> None:
    """The directory id of the second log directory, which has a partition, is no UUID."""
    log_dir(base, name="d1")
    path = log_dir(base, REBORN, name="d2") / "meta.properties"
    path.write_text(path.read_text().replace("directory.id=", "directory.id=%"))


@start_state(log_dirs=("d1", "d2"))
def first_log_dir_with_garbage_as_meta_properties(base: Path) -> None:
    """The meta.properties of the first log directory, which is that of the metadata log, cannot be parsed."""
    (log_dir(base, name="d1") / "meta.properties").write_text(GARBAGE)
    log_dir(base, REBORN, name="d2")


@start_state(log_dirs=("d1", "d2"), settings={"metadata.log.dir": "d2"})
def first_log_dir_with_garbage_and_the_metadata_log_in_the_second(base: Path) -> None:
    """The meta.properties of the first log directory cannot be parsed; the metadata log is in the second one."""
    (log_dir(base, name="d1") / "meta.properties").write_text(GARBAGE)
    log_dir(base, REBORN, METADATA, name="d2")


def _only_meta_properties(base: Path) -> Path:
    root = log_dir(base, name="meta")
    shutil.rmtree(root / "payments-0")
    for path in root.iterdir():
        if path.name != "meta.properties":
            path.unlink()
    return root / "meta.properties"
