"""The bundled files that real brokers wrote, by kind: which of them are read one by one, and the loop over them."""

import functools
import inspect
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from budgets import TIER
from manifests import AIVEN, CLUSTER, DAMAGED, FIXTURES, is_known_corruption

CLUSTER_DISKS_READ = (CLUSTER / "node1", CLUSTER / "old" / "node2-killed")
"""The replicas of one partition hold the same batches. So only two disks are read file by file: a healthy one, and that of the broker
that was killed. The second has indexes as they were allocated, and no mark of a clean stop."""
REPLICATED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
"""Files that the other disks share. Their checkpoints, markers, ids, elections and files to be deleted are their own, and are
read."""


def _is_read(path: Path) -> bool:
    if path.is_relative_to(CLUSTER) and path.suffix in REPLICATED:
        return any(path.is_relative_to(disk) for disk in CLUSTER_DISKS_READ)
    return not path.is_relative_to(AIVEN) and not is_known_corruption(path) and path.is_file()


@functools.cache
def _files_read() -> tuple[Path, ...]:
    """All of them, sorted: the directories are listed once for all patterns."""
    return tuple(sorted(path for path in FIXTURES.rglob("*") if _is_read(path)))


def broker_files(*patterns: str) -> list[Path]:
    """Files that match a pattern, sorted. Fails where there is none."""
    found = [path for path in _files_read() if any(path.match(pattern) for pattern in patterns)]
    assert found, f"no fixture matches {patterns}"
    return found


def _of_this_tier(paths: list[Path]) -> list[Path]:
    """In the quick tier three files of each kind in each directory: the smallest, the largest and the last. All damaged ones."""
    if TIER != "quick":
        return paths
    alike: dict[tuple[Path, str], list[Path]] = {}
    for path in paths:
        alike.setdefault((path.parent, path.suffix), []).append(path)
    kept: set[Path] = set()
    for files in alike.values():
        kept |= {min(files, key=_size_bytes), max(files, key=_size_bytes), files[-1]}
    return [path for path in paths if path in kept or path.is_relative_to(DAMAGED)]


def _size_bytes(path: Path) -> int:
    return path.stat().st_size


def each_broker_file(*patterns: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test with an argument ``path`` is run for each of ``broker_files``, as one test for each bundled directory.

    The quick tier takes some of each kind, the full tier all.

    A failure names the file. The other arguments of the test may be fixtures and parameters.
    """
    directories = [
        pytest.param(list(paths), id=name)
        for name, paths in groupby(_of_this_tier(broker_files(*patterns)), key=lambda path: path.relative_to(FIXTURES).parts[0])
    ]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        def over_a_directory(*args: object, paths: list[Path], **kwargs: object) -> None:
            __tracebackhide__ = True
            for path in paths:
                try:
                    test(*args, path=path, **kwargs)
                except BaseException as error:  # pytest.raises fails with one that is no Exception
                    error.add_note(f"the file is fixtures/{path.relative_to(FIXTURES)}")
                    raise

        signature = inspect.signature(test)
        arguments = [each.replace(name="paths" if name == "path" else name) for name, each in signature.parameters.items()]
        for name in ("__name__", "__qualname__", "__module__", "__doc__", "pytestmark"):
            if hasattr(test, name):
                setattr(over_a_directory, name, getattr(test, name))
        over_a_directory.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("paths", directories)(over_a_directory)

    return decorated


def dumped_files() -> list[tuple[Path, Path]]:
    """Kafka's own dumps (``kafka-dump-log``), each with the segment or checkpoint that it reports."""
    found = []
    for dump in broker_files("*.dump.txt"):
        match = re.fullmatch(r"(?:(?P<where>.+?)[-.])?(?P<name>\d{20}[-.].+)\.dump\.txt", dump.name)
        assert match is not None, dump
        where = match["where"] or "__cluster_metadata-0"
        directories = (f"{where}/__cluster_metadata-0", f"logs/{where}", f"node1/{where}")
        paths = [dump.parent.parent / directory / match["name"] for directory in directories]
        (path,) = (path for path in paths if path.is_file())
        found.append((dump, path))
    return found
