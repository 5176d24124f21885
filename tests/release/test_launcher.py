"""The launcher of the one file: where it unpacks, whether that is whole, what it removes, and that it keeps no broker down."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher_runs import COMMAND, LIBRARY, SECONDS_MAX, at, is_started, library, small_release, start, trees

pytestmark = pytest.mark.release


@pytest.fixture
def one(launcher: Path) -> Path:
    return launcher


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_release(tmp_path_factory.mktemp("launcher"), "two")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def tree_of(place: Path) -> Path:
    (name,) = trees(place)
    return place / name


# --- healthy starts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["scan", "before-start", "install"])
def test_the_command_gets_process_arguments_and_streams(verb: str, one: Path, place: Path) -> None:
    arguments = [str(one), verb, "a b", "--deadline", "30", "--", "sh"]
    process = subprocess.Popen(arguments, env=at(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, errors
    first, launched, *given = out.splitlines()
    assert (first, given, errors, process.returncode) == (f"command {process.pid}", arguments, "", 0)
    assert int(launched.split()[0]) == process.pid


def test_the_second_start_unpacks_nothing(one: Path, place: Path) -> None:
    seen = []
    for _ in range(2):
        assert is_started(start(one, "scan", environment=at(place)))
        tree = tree_of(place)
        seen.append({path: (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in [*place.iterdir(), *tree.rglob("*")]})
    assert seen[0] == seen[1]
    assert (tree / LIBRARY).read_bytes() == library("one")
    assert (tree / LIBRARY).stat().st_mode & 0o777 == 0o444
    assert (tree / COMMAND).stat().st_mode & 0o777 == 0o555


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_umask_and_closed_streams_change_nothing(umask: int, one: Path, place: Path) -> None:
    script = f'umask {umask:03o}; exec "$@" <&- 2>&-'
    reported = start(one, "scan", before=("sh", "-c", script, "sh"), environment=at(place))
    assert is_started(reported)
    assert (tree_of(place) / LIBRARY).read_bytes() == library("one")


def test_many_starts_at_once(one: Path, two: Path, place: Path) -> None:
    """With nothing there, and with a damaged tree that some of them use."""
    for _ in range(3):
        processes = [
            subprocess.Popen([file, "scan"], env=at(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for file in (one, one, one, two, one, one)
        ]
        results = [process.communicate(timeout=SECONDS_MAX) for process in processes]
        assert [(out[:8], errors) for out, errors in results] == [("command ", "")] * len(results)
        for name in trees(place):
            assert len(name) == 32, "nothing half done is left"
            (place / name / LIBRARY).chmod(0o644)
            (place / name / LIBRARY).write_bytes(b"x")


# --- contents -------------------------------------------------------------------------------------------------------------------


def keeping_times(path: Path, change: Callable[[bytearray], None]) -> None:
    """Changes bytes of a file and nothing else that can be set."""
    status, data = path.stat(), bytearray(path.read_bytes())
    change(data)
    mode = status.st_mode & 0o777
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip(path: Path) -> None:
    keeping_times(path, lambda data: data.__setitem__(1000, data[1000] ^ 1))


def zero_page(path: Path) -> None:
    keeping_times(path, lambda data: data.__setitem__(slice(4096, 8192), bytes(4096)))


def replace(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(bytes(len(data)))
    path.chmod(0o444)


def link_elsewhere(path: Path) -> None:
    moved = path.rename(path.with_name("moved"))
    path.symlink_to(moved)


DAMAGE = {
    "flipped": flip,
    "zeroed": zero_page,
    "replaced": replace,
    "link": link_elsewhere,
    "shorter": lambda path: keeping_times(path, lambda data: data.__delitem__(slice(-1, None))),
    "longer": lambda path: keeping_times(path, lambda data: data.append(0)),
    "gone": Path.unlink,
    "mode": lambda path: path.chmod(0o000),
    "directory": lambda path: (path.unlink(), path.mkdir()),
    "parent-gone": lambda path: shutil.rmtree(path.parent),
    "tree-is-a-file": lambda path: (shutil.rmtree(path.parents[2]), path.parents[2].write_bytes(b"")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_unpacked_anew(damage: str, one: Path, place: Path) -> None:
    assert is_started(start(one, "scan", environment=at(place)))
    tree = tree_of(place)
    DAMAGE[damage](tree / LIBRARY)
    reported = start(one, "scan", environment=at(place))
    assert (is_started(reported), reported.stderr) == (True, "")
    assert (tree_of(place) / LIBRARY).read_bytes() == library("one")
    assert sorted(path.name for path in place.iterdir()) == [tree.name, f"{tree.name}.used"]


RECORDS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda record: record[:20],
    "other-boot": lambda record: b"0" * 36 + record[36:],
    "other-sum": lambda record: record[:37] + b"00000000\n",
}


@pytest.mark.parametrize("case", RECORDS)
def test_what_is_whole_is_not_unpacked_again(case: str, one: Path, place: Path) -> None:
    """Where the record says nothing, contents are compared, and the record is written again."""
    assert is_started(start(one, "scan", environment=at(place)))
    tree = tree_of(place)
    record, before = place / f"{tree.name}.used", tree.stat().st_ino
    record.write_bytes(RECORDS[case](record.read_bytes()))
    assert is_started(start(one, "scan", environment=at(place)))
    assert tree.stat().st_ino == before
    assert record.read_bytes() == record_of(tree)


def test_a_file_that_was_touched_is_not_unpacked_again(one: Path, place: Path) -> None:
    assert is_started(start(one, "scan", environment=at(place)))
    tree = tree_of(place)
    record, before = place / f"{tree.name}.used", tree.stat().st_ino
    os.utime(tree / LIBRARY)
    assert record.read_bytes() != record_of(tree)
    assert is_started(start(one, "scan", environment=at(place)))
    record.unlink()
    assert is_started(start(one, "scan", environment=at(place)))
    assert tree.stat().st_ino == before
    assert record.read_bytes() == record_of(tree)


def record_of(tree: Path, boot: str | None = None) -> bytes:
    """The record that the launcher writes: the boot, and a sum of inode and change time of each file in the order of the list."""
    boot = boot or Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    total = 0
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        status = path.stat()
        total = zlib.crc32(struct.pack("=QQQ", status.st_ino, *divmod(status.st_ctime_ns, 10**9)), total)
    return f"{boot} {total:08x}\n".encode()


def test_after_a_boot_contents_are_compared(one: Path, place: Path) -> None:
    """A power failure loses pages and keeps what the directory says of the file."""
    assert is_started(start(one, "scan", environment=at(place)))
    tree = tree_of(place)
    record, before = place / f"{tree.name}.used", tree.stat().st_ino
    zero_page(tree / LIBRARY)
    record.write_bytes(record_of(tree))
    assert is_started(start(one, "scan", environment=at(place)))
    assert tree.stat().st_ino == before, "nothing shows the damage within the same boot: else this test shows nothing"
    record.write_bytes(record_of(tree, "0" * 36))
    assert is_started(start(one, "scan", environment=at(place)))
    assert (tree / LIBRARY).read_bytes() == library("one")


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_each_file_and_directory_is_synced_and_nothing_else(one: Path, place: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    before = ("strace", "-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,sync,syncfs", "-o", trace)
    assert is_started(start(one, "scan", before=before, environment=at(place)))
    calls = [line.split(None, 1)[1] for line in trace.read_text().splitlines()]
    assert all(call.startswith("fsync(") for call in calls)
    synced = [call.partition("<")[2].partition(">")[0] for call in calls]
    tree = tree_of(place)
    (begun,) = {path for path in synced if Path(path).parent == place}
    found = [path.replace(begun, str(tree)) for path in synced]
    assert set(found) == {str(path) for path in [place, tree, *tree.rglob("*")]}
    assert max(found.index(str(path)) for path in tree.rglob("*") if path.is_file()) < found.index(str(tree / "lib"))


# --- what others left -----------------------------------------------------------------------------------------------------------


def test_leftovers_are_removed_and_nothing_else(one: Path, two: Path, place: Path) -> None:
    key = "0123456789abcdef" * 2
    place.mkdir(mode=0o700)
    for name in (f".new-{key}-1", f".old-{key}-4711"):
        (place / name / "bin").mkdir(parents=True)
        (place / name / "bin" / "snaprebuild").write_bytes(b"x")
    (place / f"{key}.used").write_bytes(b"")  # whose tree was cleaned away
    foreign = [
        f".new-{key}",
        f".new-{key}-",
        f".new-{key}-1x",
        f".new-{key[1:]}-1",
        "documents",
        key.upper(),
        f"{key[:-1]}0",
        "..old",
    ]
    for name in foreign:
        (place / name).mkdir()
    outside = place.parent / "outside"
    (outside / "kept").mkdir(parents=True)
    (place / f".new-{key}-2").symlink_to(outside)
    assert is_started(start(two, "scan", environment=at(place)))
    assert is_started(start(one, "scan", environment=at(place)))
    (tree,) = (path for path in place.glob("*.used"))
    assert {path.name for path in place.iterdir()} - {f".new-{key}-2"} == {tree.stem, tree.name, *foreign}
    assert (outside / "kept").is_dir()
    assert (place / tree.stem / LIBRARY).read_bytes() == library("one")


def test_a_tree_that_a_process_uses_stays(one: Path, two: Path, place: Path) -> None:
    holder = subprocess.Popen([two, "hold"], env=at(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline().startswith("command ")
    used = tree_of(place)
    for _ in range(2):
        assert is_started(start(one, "scan", environment=at(place)))
        assert (used / LIBRARY).read_bytes() == library("two")
    holder.communicate(timeout=SECONDS_MAX)
    assert is_started(start(one, "scan", environment=at(place)))
    assert used.name not in trees(place)


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("call", ["flock", "sync_file_range", "fsync", "renameat"])
@pytest.mark.parametrize("verb", ["scan", "before-start"])
def test_a_killed_unpack_is_removed_by_the_next_start(
    call: str, verb: str, one: Path, two: Path, place: Path, tmp_path: Path
) -> None:
    before = ("strace", "-f", "-qq", "-o", tmp_path / "trace", "-e", f"inject={call}:signal=KILL:when=1")
    reported = start(one, verb, before=before, environment=at(place))
    assert not is_started(reported)
    assert reported.exit_code == (-signal.SIGKILL if verb == "scan" else 5)
    assert [name[:5] for name in trees(place)] == ([] if call == "flock" else [".new-"])
    assert is_started(start(two, "scan", environment=at(place)))
    assert (tree_of(place) / LIBRARY).read_bytes() == library("two")


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_what_another_process_is_unpacking_stays(one: Path, two: Path, place: Path, tmp_path: Path) -> None:
    before = ("strace", "-f", "-qq", "-o", tmp_path / "trace", "-e", "inject=fsync:delay_enter=600s:when=1")
    slow = subprocess.Popen([*map(str, before), one, "scan"], env={"PATH": os.environ["PATH"]} | at(place), start_new_session=True)
    try:
        until = time.monotonic() + SECONDS_MAX
        while not (place.exists() and [name for name in trees(place) if (place / name / LIBRARY).exists()]):
            assert time.monotonic() < until
            time.sleep(0.01)
        (begun,) = trees(place)
        assert begun.startswith(".new-")
        assert is_started(start(two, "before-start", "--deadline", "1", environment=at(place))) is False
        assert begun in trees(place)
    finally:
        os.killpg(slow.pid, signal.SIGKILL)
        slow.wait()
