"""The launcher of the one file makes nothing in a log directory of a broker, however its place leads there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher_runs import at, is_started, start, trees

from formats.partition.file_names import BROKER_FILES
from snaprebuild.storage.local.broker_lock import LOCK_FILE_NAME

pytestmark = pytest.mark.release

SEGMENT = "00000000000000008231.log"
FILES = [name for name in BROKER_FILES if name != LOCK_FILE_NAME]
"""Files that make a directory a broker's; a lock file alone does not: many programs have one of this name."""


@pytest.fixture
def one(launcher: Path) -> Path:
    return launcher


def everything_in(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*"))


def log_dir(root: Path, *, marks: tuple[str, ...] = (FILES[0],)) -> Path:
    """`logs` with these files in it, and a directory `sub`."""
    logs = root / "logs"
    (logs / "sub").mkdir(parents=True)
    for mark in marks:
        (logs / mark).parent.mkdir(exist_ok=True)
        (logs / mark).write_bytes(b"")
    return logs


MARKS = [
    *FILES,
    f"orders-0/{SEGMENT}",
    "my.topic_x-a-12/00000000000000000000.index",
    "orders-1.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log.deleted",
    "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
    "orders-2/leader-epoch-checkpoint",
    "orders-3/partition.metadata",
]


@pytest.mark.parametrize("mark", MARKS)
def test_each_mark_of_a_log_directory(mark: str, one: Path, tmp_path: Path) -> None:
    logs = log_dir(tmp_path, marks=(mark,))
    before = everything_in(tmp_path)
    reported = start(one, "scan", environment=at(logs / "cache"))
    assert (reported.exit_code, reported.stdout) == (3, "")
    assert f"SNAPREBUILD_CACHE_DIR names no place to unpack into:\n  {logs}/cache: is in {logs}, a log directory" in reported.stderr
    assert everything_in(tmp_path) == before


def linked(target: Path, name: Path) -> Path:
    name.symlink_to(target)
    return name


WAYS: dict[str, Callable[[Path, Path], Path]] = {
    "at": lambda logs, _: logs,
    "in": lambda logs, _: logs / "cache",
    "in-sub": lambda logs, _: logs / "sub" / "cache",
    "is-sub": lambda logs, _: logs / "sub",
    "below-nothing": lambda logs, _: logs / "none" / "cache",
    "in-partition": lambda logs, _: logs / "orders-0" / "cache",
    "link": lambda logs, root: linked(logs, root / "link"),
    "below-link": lambda logs, root: linked(logs, root / "link") / "cache",
    "link-to-sub": lambda logs, root: linked(logs / "sub", root / "link") / "cache",
    "relative-link": lambda logs, root: linked(Path(logs.name, "sub"), root / "link") / "cache",
    "dots": lambda logs, _: logs / "sub" / ".." / "cache",
}


@pytest.mark.parametrize("variable", ["SNAPREBUILD_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_into_a_log_directory(way: str, variable: str, one: Path, tmp_path: Path) -> None:
    """A named place is refused. Of the default ones the next is taken."""
    logs = log_dir(tmp_path, marks=(FILES[0], f"orders-0/{SEGMENT}"))
    path = WAYS[way](logs, tmp_path)
    home = tmp_path / "home"
    for each in (home, path.parent if variable == "SNAPREBUILD_CACHE_DIR" else path):
        if "none" not in each.parts:
            each.mkdir(parents=True, exist_ok=True)
    before = everything_in(logs)
    environment = {"XDG_CACHE_HOME": str(home)} | {variable: str(path)}
    if variable == "XDG_CACHE_HOME":
        environment["HOME"] = str(home)
    reported = start(one, "scan", environment=environment)
    assert everything_in(logs) == before
    if variable == "SNAPREBUILD_CACHE_DIR":
        assert reported.exit_code == 3
    else:
        assert is_started(reported), reported.stderr
        assert len([*home.rglob("*.used")]) == 1


PROPERTIES = {
    "one": "log.dirs={logs}\n",
    "several": "log.dirs=/nowhere, {logs} ,/elsewhere\n",
    "log.dir": "broker.id=1\n  log.dir : {logs}\n",
    "metadata": "log.dirs=/nowhere\nmetadata.log.dir {logs}",
    "continued": "log.dirs=/nowhere,\\\n    {logs}\n",
    "escaped": "log.dirs=\\{logs}\n",
    "not-the-last": "log.dirs={logs}\nlog.dirs=/nowhere\n",
    "returns": "#log.dirs=/x\r\nlog.dirs={logs}\r\nz=1\r\n",
    "link": "log.dirs={link}\n",
}


@pytest.mark.parametrize("case", PROPERTIES)
@pytest.mark.parametrize("joined", [False, True])
def test_an_empty_log_directory_that_server_properties_names(joined: bool, case: str, one: Path, tmp_path: Path) -> None:
    logs = log_dir(tmp_path, marks=())
    link = linked(logs, tmp_path / "link")
    file = tmp_path / "server.properties"
    file.write_bytes(PROPERTIES[case].format(logs=logs, link=link).encode())
    option = [f"--server-properties={file}"] if joined else ["--server-properties", file]
    before = everything_in(tmp_path)
    reported = start(one, "before-start", *option, "--deadline", "9", "--", "echo", "CMD", environment=at(logs / "sub" / "cache"))
    assert (reported.exit_code, reported.stdout) == (0, "CMD\n")
    assert f"is in {logs}, a log directory" in reported.stderr
    assert everything_in(tmp_path) == before


HEALTHY = {
    "sibling": "cache",
    "same-beginning": "logs2/cache",
    "name-like-a-partition": "cache-1",
    "in-a-name-like-a-partition": "data-0/cache",
}


@pytest.mark.parametrize("case", HEALTHY)
def test_places_next_to_log_directories_are_used(case: str, one: Path, tmp_path: Path) -> None:
    """A disk may be named like a partition, and other programs have lock files and directories that are named like one."""
    log_dir(tmp_path, marks=(FILES[0], f"orders-0/{SEGMENT}"))
    for name in ("data-0", "logs2", "python-3", "empty-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "python-3" / "1.log").write_bytes(b"")
    (tmp_path / LOCK_FILE_NAME).write_bytes(b"")
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/logs,\n#log.dirs={tmp_path}\nx.log.dirs={tmp_path}\nlog.dirs.x={tmp_path}\n")
    place = tmp_path / HEALTHY[case]
    assert is_started(start(one, "scan", "--server-properties", file, environment=at(place)))
    assert len(trees(place)) == 1


def test_server_properties_in_a_pipe_is_left_for_the_command(one: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    os.write(end, b"log.dirs=/x\n")
    try:
        assert is_started(start(one, "scan", "--server-properties", pipe, environment=at(tmp_path / "cache")))
        assert os.read(end, 100) == b"log.dirs=/x\n"
    finally:
        os.close(end)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_the_last_places(one: Path, tmp_path: Path) -> None:
    """/var/tmp where home is a log directory, /tmp where both are, and none at all."""
    logs = log_dir(tmp_path)
    script = f"""
        mount -t tmpfs tmpfs /var/tmp
        "$0" scan > /dev/null
        echo /var/tmp/*/*.used
        cp "$0" /var/tmp/one
        touch /var/tmp/meta.properties
        mount -t tmpfs tmpfs /tmp
        mkdir -p {logs}
        touch {logs}/meta.properties
        /var/tmp/one scan > /dev/null
        echo /tmp/snaprebuild-*/*.used
        touch /tmp/meta.properties
        /var/tmp/one scan || echo $?
    """
    reported = start(one, before=("unshare", "--mount", "sh", "-ec", script), environment={"HOME": str(logs)})
    lines = reported.stdout.splitlines()
    assert [line.rpartition("/")[0] for line in lines] == ["/var/tmp/snaprebuild-0", "/tmp/snaprebuild-0", ""], reported.stderr
    assert lines[-1] == "3"
    assert reported.stderr.count("a log directory of a broker") == 3
    assert "finds no place to unpack itself into" in reported.stderr
