"""The one file where there is no Python, what it says is inside, and its tree as an archive."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest
from command import SECONDS_MAX, run_process
from manifests import FIXTURES, REPOSITORY
from one_file_runs import CHROOT, FIXTURE, assert_as_kafka_says, many_bytes, run, unpacked
from releases import EPOCH
from sentences import WORKERS_CANNOT_START
from typer.testing import CliRunner

from snaprebuild.cli.main import app

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


# --- the one file -------------------------------------------------------------------------------------------------------------


def test_every_module_and_every_table_is_inside(one_file: Path, cache: Path) -> None:
    """Modules and tables of both packages are expected, but for those that need what the one file comes without."""
    assert run(one_file, cache, "--version").exit_code == 0
    (packages,) = unpacked(cache).glob("lib/python3*/site-packages")
    for package in ("formats", "snaprebuild"):
        listed = {path.relative_to(REPOSITORY) for path in (REPOSITORY / package).rglob("*") if path.is_file()}
        wanted = {path for path in listed if not {"__pycache__", "spark", "py.typed"} & {*path.parts}}
        inside = {path.relative_to(packages).with_suffix("") for path in (packages / package).rglob("*") if path.is_file()}
        assert {path for path in wanted if path.with_suffix("") not in inside} == set()


@pytest.mark.parametrize("words", ["", "inspect", "tier upload", "rebuild"])
def test_help_with_an_empty_path(words: str, one_file: Path, cache: Path) -> None:
    arguments = [*words.split(), "--help"]
    reported = run(one_file, cache, *arguments)
    assert (reported.exit_code, reported.stderr) == (0, "")
    here = CliRunner().invoke(app, arguments, prog_name="snaprebuild").stdout
    assert len(here) > 200
    assert "".join(reported.stdout.split()) == "".join(here.split()), "but for the width of the terminal"


def test_it_rebuilds_what_kafka_says(one_file: Path, cache: Path, tmp_path: Path) -> None:
    reported = run(one_file, cache, "rebuild", FIXTURES / FIXTURE, "--out", tmp_path / "out", "--boundaries", "all")
    assert reported.exit_code == 0, reported.stderr
    assert_as_kafka_says(tmp_path / "out")
    reported = run(one_file, cache, "verify", FIXTURES / FIXTURE, "--output", "json")
    (tmp_path / "verified.json").write_text(reported.stdout)
    reported = run(one_file, cache, "report", tmp_path / "verified.json", "--html", tmp_path / "page.html")
    assert reported.exit_code in (0, 1), reported.stderr
    assert "<html" in (tmp_path / "page.html").read_text()


def test_what_a_broker_gets_that_it_starts(one_file: Path, cache: Path, tmp_path: Path) -> None:
    """Neither paths of libraries nor variables of the interpreter, and the process that was started."""
    logs = tmp_path / "logs"
    shutil.copytree(FIXTURES / FIXTURE / "logs", logs)
    script = (
        'echo "$$"; /usr/bin/env; read -r children < /proc/$$/task/$$/children; echo "children: $children"; /bin/ls /proc/$$/fd'
    )
    started = subprocess.Popen(
        [one_file, "before-start", logs, "--", "/bin/sh", "-c", script],
        env={"SNAPREBUILD_CACHE_DIR": str(cache), "LD_LIBRARY_PATH": "/nowhere", "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, errors = started.communicate(timeout=SECONDS_MAX)
    said, _, rest = out.partition("children: ")
    assert rest.split() == ["0", "1", "2"], "no process and no open file of ours"
    number, *variables = said.splitlines()
    assert int(number) == started.pid, errors
    names = {each.partition("=")[0] for each in variables}
    assert "LD_LIBRARY_PATH=/nowhere" in variables
    assert names <= {"SNAPREBUILD_CACHE_DIR", "LD_LIBRARY_PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root directory")
def test_in_an_empty_file_system(one_file: Path, tmp_path: Path) -> None:
    """Without a C library, a loader, a shell; at first without /proc and /dev, too."""
    root = tmp_path / "root"
    for folder in ("proc", "dev", "tmp"):
        (root / folder).mkdir(parents=True)
    shutil.copy(one_file, root / "snaprebuild")
    shutil.copytree(FIXTURES / FIXTURE / "logs", root / "logs")
    many_bytes(root / "large")
    begin = f"env -i {CHROOT} {root} /snaprebuild"
    script = f"""
        {begin} --version || exit 9
        {begin} rebuild /logs --out /tmp/out --boundaries all --output json || exit 9
        mount -t proc proc {root}/proc
        {begin} verify /large --jobs 2 > /dev/null && exit 9
        mount --bind /dev {root}/dev
        {begin} rebuild /large --out /tmp/workers --boundaries all --jobs 2 > /dev/null || exit 9
        mount -t tmpfs -o noexec tmpfs {root}/tmp
        {begin} --version
    """
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script]
    reported = run_process(*command)
    assert reported.exit_code == 3, reported.stderr
    version, document = reported.stdout.split("\n", 1)
    assert version == "snaprebuild 0.1.0"
    assert json.loads(document)["totals"]["written"] == 23
    assert f"{WORKERS_CANNOT_START}No such file or directory. They need /dev/null and /dev/shm" in reported.stderr
    assert "/tmp/snaprebuild-0: is mounted noexec" in reported.stderr


def test_nothing_inside_needs_what_is_not_inside(one_file: Path, cache: Path) -> None:
    """Each library, and each version of a symbol, that an ELF file asks for is there. Only two programs are started by the system."""
    assert run(one_file, cache, "--version").exit_code == 0
    tree = unpacked(cache)
    elf = [path for path in tree.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    names, given, asked = {path.name for path in elf} | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, set(), {}
    for path in elf:
        reported = subprocess.run(["readelf", "-dVlW", path], capture_output=True, text=True, check=True).stdout
        assert not {*re.findall(r"\(NEEDED\).*\[(.+)\]", reported)} - names, path
        defined, _, needed = reported.partition("Version needs section")
        given |= set(re.findall(r"Name: (GLIBC_\S+)", defined))
        asked |= dict.fromkeys(re.findall(r"Name: (GLIBC_\S+)", needed), path.name)
    assert not {version: name for version, name in asked.items() if version not in given}
    for program in (one_file, next(tree.glob("bin/python*"))):
        headers = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in headers


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_local_verbs_ask_for_no_network(one_file: Path, cache: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    before = (shutil.which("strace"), "-f", "--seccomp-bpf", "-qq", "-e", "trace=network", "-o", trace)
    logs = tmp_path / "logs"
    shutil.copytree(FIXTURES / FIXTURE / "logs", logs)
    large = many_bytes(tmp_path / "large")
    seen = ""
    for arguments in (("verify", logs), ("rebuild", large, "--out", tmp_path / "workers", "--boundaries", "all", "--jobs", 2)):
        reported = run(one_file, cache, *arguments, before=before)
        assert reported.exit_code in (0, 1), reported.stderr
        seen += trace.read_text()
    assert not [line for line in seen.splitlines() if "AF_INET" in line or "AF_NETLINK" in line or "AF_PACKET" in line]
    families = set(re.findall(r"\b(?:socket|socketpair)\((\w+)", seen))
    assert families == {"AF_UNIX"}, "which workers are asked over: it has no address in any network"


def test_what_was_cleaned_away_comes_back(one_file: Path, tmp_path: Path) -> None:
    assert run(one_file, tmp_path, "--version").exit_code == 0
    (tree,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert tree.stat().st_mode & 0o777 == 0o700
    first = tree.stat().st_ino
    assert run(one_file, tmp_path, "--version").exit_code == 0
    assert tree.stat().st_ino == first, "what is whole is not unpacked again"
    shutil.rmtree(next(tree.glob("lib/python3*/json")))
    reported = [run(one_file, tmp_path, "--version")]
    runners = [threading.Thread(target=lambda: reported.append(run(one_file, tmp_path, "--version"))) for _ in range(4)]
    shutil.rmtree(next(tree.glob("lib/python3*/json")))
    for each in runners:
        each.start()
    for each in runners:
        each.join()
    assert {(each.exit_code, each.stdout, each.stderr) for each in reported} == {(0, "snaprebuild 0.1.0\n", "")}
    assert len(reported) == 5
    assert {path.name for path in tmp_path.iterdir()} == {tree.name, f"{tree.name}.used"}, "nothing half done is left"


def test_a_byte_of_a_module_or_a_library_that_is_another_is_found(one_file: Path, tmp_path: Path) -> None:
    """The byte is changed with equal size and time; the tree that is unpacked anew is used at once."""
    assert run(one_file, tmp_path, "--version").exit_code == 0
    whole = {}
    for pattern in ("lib/python3*/json/decoder.pyc", "lib/libc.so.6", "bin/interpreter"):
        (path,) = unpacked(tmp_path).glob(pattern)
        status, data = path.stat(), path.read_bytes()
        whole[path] = data
        spoiled = bytearray(data)
        spoiled[len(data) // 2] ^= 0xFF
        path.chmod(0o755)
        path.write_bytes(spoiled)
        path.chmod(status.st_mode & 0o777)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run(one_file, tmp_path, "--version").stdout == "snaprebuild 0.1.0\n"
    assert {path: path.read_bytes() for path in whole} == whole


def test_the_tree_that_a_command_uses_stays(one_file: Path, launcher: Path, tmp_path: Path) -> None:
    """Another release removes it when the command has ended, or has become CMD."""
    variables = {"SNAPREBUILD_CACHE_DIR": str(tmp_path)}

    def is_there_after_another_release() -> bool:
        subprocess.run([launcher, "scan"], env=variables, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS_MAX)
        return bool([*tmp_path.glob("*/bin/interpreter")])

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    process = subprocess.Popen([one_file, "--version"], env=variables, stdout=writer)  # cannot end: the pipe is full
    try:
        until = time.monotonic() + SECONDS_MAX
        while not os.readlink(f"/proc/{process.pid}/exe").endswith("/lib/snaprebuild"):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert is_there_after_another_release()
    finally:
        process.kill()
        process.wait()
        os.close(writer)
        os.close(reader)
    assert not is_there_after_another_release()
    script = f'"{launcher}" scan'
    started = subprocess.run(
        [one_file, "before-start", tmp_path / "logs", "--", "/bin/sh", "-c", script], env=variables, check=False
    )
    assert started.returncode == 0
    assert not [*tmp_path.glob("*/bin/interpreter")], "CMD holds no lock"


def test_a_place_that_others_may_write_to_is_refused(one_file: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    reported = run(one_file, tmp_path, "--version")
    assert (reported.exit_code, reported.stdout) == (3, "")
    assert f"{tmp_path}: others may write there" in reported.stderr
    assert not [*tmp_path.iterdir()]
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert run(one_file, link, "--version").exit_code == 3


def test_a_damaged_file_says_so(one_file: Path, tmp_path: Path) -> None:
    """Wherever after the launcher a bit is another: much of a deflate stream can be read with a wrong byte in it, only its sum shows it."""
    whole = one_file.read_bytes()
    contents_at, contents_size, list_at, list_size, *_ = struct.unpack("<5Q", whole[-112:-72])
    assert contents_at + contents_size == list_at
    assert list_at + list_size == len(whole) - 112
    spoiled = tmp_path / "spoiled"
    (tmp_path / "cache").mkdir()
    places = [contents_at, contents_at + contents_size // 2, list_at - 1]  # the last is of the sum itself
    places += [list_at + list_size // 2] + [len(whole) - 112 + 8 * field for field in range(5)]
    for place in places:
        data = bytearray(whole)
        data[place] ^= 0x10
        spoiled.write_bytes(data)
        spoiled.chmod(0o755)
        reported = run(spoiled, tmp_path / "cache", "--version")
        assert (reported.exit_code, reported.stdout) == (5, ""), place
        reported = run(spoiled, tmp_path / "cache", "before-start", "/logs", "--", "/bin/echo", "CMD")
        assert (reported.exit_code, reported.stdout) == (0, "CMD\n"), "a broker starts all the same"
        assert "compare it with SHA256SUMS" in reported.stderr
        assert not [*(tmp_path / "cache").iterdir()]
    spoiled.write_bytes(whole[:-100])
    reported = run(spoiled, tmp_path / "cache", "--version")
    assert (reported.exit_code, reported.stdout) == (5, "")
    assert "this file is not whole: compare it with SHA256SUMS" in reported.stderr


# --- the tree as an archive -----------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root directory")
def test_the_tree_runs_from_a_read_only_root_without_a_cache(release: Path, tmp_path: Path) -> None:
    """Nothing in the file system can be written but the directory of the result; programs start from the tree only."""
    (archive,) = release.glob("snaprebuild-*-linux-*.tar.gz")
    root = tmp_path / "root"
    for folder in ("opt", "out", "logs", "dev", "usr/bin"):
        (root / folder).mkdir(parents=True)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", root / "opt"], check=True)
    shutil.copytree(FIXTURES / FIXTURE / "logs", root / "logs", dirs_exist_ok=True)
    (root / "usr/bin/snaprebuild").symlink_to(f"/opt/{archive.name.removesuffix('.tar.gz')}/bin/snaprebuild")
    begin = f"env -i {CHROOT} {root} /usr/bin/snaprebuild"
    script = f"""
        mount --bind {root} {root} && mount -o remount,bind,ro {root} || exit 9
        mount -t tmpfs -o noexec tmpfs {root}/out || exit 9
        ! touch {root}/opt/here 2> /dev/null || exit 9
        {begin} --version || exit 9
        {begin} rebuild /logs --out /out/made --boundaries all --output json --receipt /out/receipt || exit 9
        cp -r {root}/out/made {tmp_path}/made
    """
    command = ["unshare", "--mount", "sh", "-c", script]
    reported = run_process(*command)
    assert reported.exit_code == 0, reported.stderr
    assert reported.stdout.startswith("snaprebuild 0.1.0\n")
    assert_as_kafka_says(tmp_path / "made")


def test_the_tree_is_what_the_one_file_unpacks(release: Path, one_file: Path, cache: Path) -> None:
    """Owner, times and modes are those of no machine and of no user."""
    assert run(one_file, cache, "--version").exit_code == 0
    tree = unpacked(cache)
    with tarfile.open(f"{one_file}.tar.gz") as archive:
        entries = archive.getmembers()
        data = {entry.name.partition("/")[2]: archive.extractfile(entry).read() for entry in entries if entry.isfile()}  # type: ignore[union-attr]
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {(0, 0, "", "", EPOCH)}
    assert {entry.mode for entry in entries if entry.isfile()} == {0o444, 0o555}
    for name in ("LICENSE", "THIRD-PARTY-NOTICES.txt"):
        assert data.pop(name) == (release / name).read_bytes()
    assert data == {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
