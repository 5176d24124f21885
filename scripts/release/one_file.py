"""The tree of a release: an interpreter, the packages and every shared library they need. As an archive, and as the one file.

The C library and its loader are inside too: it starts on any Linux, also on one that has none (one_file_starter.c).
The one file is a launcher (one_file.c) with the tree attached.
"""

from __future__ import annotations

import compileall
import gzip
import hashlib
import importlib.metadata
import os
import platform
import py_compile
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from debian_packages import needed_libraries
from package_locks import BUNDLED

__all__ = ["Tree", "machine", "make_tree", "write_archive", "write_one_file"]

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|anl|mvec|nsl|nss_.*|crypt|BrokenLocale|thread_db))\.so\.\d+$")
"""One release of these belongs together, so they are copied as they are."""

LOADER = "snaprebuild"
"""Name of the loader in ``lib/``: the process has it."""

LEFT_OUT = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "pydoc_data",
    "sqlite3",
    "curses",
    "dbm",
    "distutils",
)
"""Packages of the standard library that nothing inside uses."""

EXTENSIONS_LEFT_OUT = re.compile(
    r"^(_tkinter|_test.*|_xx.*|xx.*|_curses.*|readline|nis|ossaudiodev|_sqlite3|_crypt|spwd|audioop|_dbm|_gdbm|_ctypes_test|_uuid)\."
)

SERVICES = {"s3", "sts", "sso", "sso-oidc", "signin"}
"""Whose descriptions botocore needs: for objects, and for the ways to credentials. All others are 40 times as large."""

SITE_CUSTOMIZE = "import os, sys\nsys.path.append(os.path.join(os.path.dirname(os.__file__), 'site-packages'))\n"
"""For the Python of Debian, which looks for packages in ``dist-packages``. Its ``site`` is frozen: it cannot be changed here."""

DROPPED = (".py", ".pyi", ".pxd", ".pyx", ".h", ".a", ".c", ".typed")
"""Sources, which are compiled, and what compilers need."""


@dataclass(frozen=True)
class Tree:
    """The directory tree that the one file unpacks."""

    root: Path
    python: str
    """Path of the program that starts the interpreter, below the root."""
    command: str = "bin/snaprebuild"
    """Path of the program that starts the command: the same one, which looks at its name."""
    interpreter: str = "bin/interpreter"
    """Path of the interpreter itself."""
    libraries: dict[str, Path] = field(default_factory=dict)
    """Shared libraries of the building system, by their names in ``lib/``: where each came from."""


def make_tree(root: Path, wheel: Path, epoch: int) -> Tree:
    """Puts interpreter, standard library and the wheel with what it needs below ``root``.

    Args:
        root: an empty directory.
        wheel: of this project. What it depends on is locked, and comes from the package index that pip is set up for.
        epoch: seconds since 1970 of everything that carries a time.

    Raises:
        CalledProcessError: pip, patchelf or strip failed.
        RuntimeError: a shared library is not to be found.
    """
    tree = Tree(root, f"bin/{VERSION}")
    home = root / "lib" / VERSION
    packages = home / "site-packages"
    _copy_standard_library(home)
    (root / "bin").mkdir()
    interpreter = root / tree.interpreter
    shutil.copyfile(os.path.realpath(sys.executable), interpreter)
    interpreter.chmod(0o755)
    _install(packages, wheel, epoch)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    _forget_where_compiled(packages)
    _drop_services(packages / "botocore" / "data")
    for tests in [*packages.rglob("tests"), packages / "numpy" / "f2py"]:
        shutil.rmtree(tests, ignore_errors=True)
    _compile(home)
    _relocate(tree)
    _compile_static("one_file_starter.c", root / tree.python, f'-DPYTHON="{VERSION}"')
    shutil.copyfile(root / tree.python, root / tree.command)
    return tree


def _install(packages: Path, wheel: Path, epoch: int) -> None:
    """Installs the wheel and the locked packages, each only with a hash that is listed. pip fails if the wheel needs another one."""
    own = packages.parent / "own-wheel.txt"
    own.write_text(f"snaprebuild @ {wheel.as_uri()} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--require-hashes",
        # Without it an old pip installs a source package (crcmod) without the metadata that the bill of materials reads.
        "--use-pep517",
        # It is built by what this environment has, which is locked too.
        "--no-build-isolation",
    ]
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        packages,
        "--requirement",
        BUNDLED,
        "--requirement",
        own,
    ]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)})
    own.unlink()


def _forget_where_compiled(packages: Path) -> None:
    """Strips extensions that were compiled here: their debug sections name a temporary directory, and the build's id is a sum of it."""
    extensions = set()
    for distribution in importlib.metadata.distributions(path=[str(packages)]):
        # Only what is made for one system alone has a bare `linux` in its tag.
        if re.search(r"^Tag: \S+-linux_", distribution.read_text("WHEEL") or "", re.MULTILINE):
            extensions |= {
                Path(str(distribution.locate_file(file))) for file in distribution.files or () if file.name.endswith(".so")
            }
    for path in extensions:
        subprocess.run(["objcopy", "--strip-unneeded", "--remove-section=.note.gnu.build-id", path], check=True)


def _copy_standard_library(home: Path) -> None:
    source = Path(sysconfig.get_path("stdlib"))

    def unwanted(folder: str, names: list[str]) -> set[str]:
        gone = {name for name in names if name in ("__pycache__", "site-packages") or name.startswith("config-")}
        if Path(folder) == source:
            gone |= {name for name in names if name in LEFT_OUT}
        return gone | {name for name in names if name in ("tests", "test") or EXTENSIONS_LEFT_OUT.match(name)}

    shutil.copytree(source, home, ignore=unwanted)
    if "dist-packages" in (home / "site.py").read_text():
        (home / "sitecustomize.py").write_text(SITE_CUSTOMIZE)


def _drop_services(data: Path) -> None:
    for each in data.iterdir():
        if each.is_dir() and each.name not in SERVICES:
            shutil.rmtree(each)


def _compile(home: Path) -> None:
    """In the directory of its source, which is removed: half as many files. It contains no time and no path of the building machine."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(home, maxlevels=50, quiet=2, legacy=True, stripdir=str(home), invalidation_mode=mode, workers=1):
        broken = [path for path in home.rglob("*.py") if not path.with_suffix(".pyc").exists()]
        if any("templates" not in path.name for path in broken):
            raise RuntimeError(f"not compiled: {broken}")
    for path in [*home.rglob("*")]:
        if path.is_file() and path.name.endswith(DROPPED):
            path.unlink()
    for path in home.glob("site-packages/*.dist-info/*"):
        if path.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            path.unlink()  # of an installation that can be changed


# --- shared libraries ---------------------------------------------------------------------------------------------------------


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _elf_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path))


def _relocate(tree: Tree) -> None:
    """Copies all libraries, and lets each file look for them below the root, wherever the root is."""
    inside = _elf_files(tree.root)
    interpreter = tree.root / tree.interpreter
    tree.libraries[LOADER] = Path(os.path.realpath(_output_of("patchelf", "--print-interpreter", interpreter)))
    # The C library opens it when a thread ends.
    tree.libraries["libgcc_s.so.1"] = Path(os.path.realpath(_output_of("cc", "-print-file-name=libgcc_s.so.1")))
    for path in [*inside, tree.libraries["libgcc_s.so.1"]]:
        for name, place in needed_libraries(path):
            if Path(place).is_relative_to(tree.root):
                continue
            if not place.startswith("/"):
                raise RuntimeError(f"{path.name} needs {name}, which this system does not have")
            tree.libraries[name] = Path(os.path.realpath(place))
    lib = tree.root / "lib"
    for name, source in sorted(tree.libraries.items()):
        shutil.copyfile(source, lib / name)
        if name != LOADER and not GLIBC.match(name):
            inside.append(lib / name)
    for path in inside:
        bundled_by_wheel = path.parent.name.endswith(".libs")
        if not bundled_by_wheel and "site-packages" not in path.parts:
            path.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", path], check=True)
        own = [each for each in _output_of("patchelf", "--print-rpath", path).split(":") if each.startswith("$ORIGIN")]
        up = os.path.relpath(lib, path.parent)
        # DT_RPATH, which LD_LIBRARY_PATH of the caller does not overrule.
        search_path = ":".join(dict.fromkeys([*own, f"$ORIGIN/{up}"]))
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", search_path, path], check=True)


def _output_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


# --- the file -----------------------------------------------------------------------------------------------------------------

MAGIC = b"snaprebuild one\0"
TAIL = struct.Struct("<QQQQQ32s24s16s")
ENTRY = struct.Struct("<IIIQ")


def write_one_file(tree: Tree, out: Path, work: Path) -> None:
    """Launcher, contents, list of files, tail: see one_file.c.

    Raises:
        CalledProcessError: the compiler failed.
    """
    launcher = work / "launcher"
    _compile_static("one_file.c", launcher, "-l:libz.a")
    listed = bytearray()
    contents = bytearray()
    key = hashlib.sha256()
    stream = zlib.compressobj(6)
    paths = sorted(path for path in tree.root.rglob("*"))
    for path in paths:
        name = path.relative_to(tree.root).as_posix().encode()
        if path.is_dir():
            entry = ENTRY.pack(0, len(name), 0, 0)
        else:
            data = path.read_bytes()
            entry = ENTRY.pack(_mode(path), len(name), zlib.crc32(data), len(data))
            contents += stream.compress(data)
            key.update(hashlib.sha256(data).digest())
        listed += entry + name + b"\0"
        key.update(entry + name)
    contents += stream.flush()
    head = launcher.read_bytes()
    ends = len(head) + len(contents)
    name = key.hexdigest()[:32].encode()
    tail = TAIL.pack(len(head), len(contents), ends, len(listed), zlib.crc32(listed), name, tree.command.encode(), MAGIC)
    out.write_bytes(head + contents + listed + tail)
    out.chmod(0o755)


def write_archive(tree: Tree, out: Path, epoch: int, extra_files: Mapping[str, Path]) -> None:
    """The tree below a directory with the name of the archive. Owner, times and order are the same in each build.

    Args:
        tree: as `make_tree` made it.
        out: `*.tar.gz`.
        epoch: seconds since 1970 of each entry.
        extra_files: files next to `bin` and `lib`: their names and where they are.
    """
    top = out.name.removesuffix(".tar.gz")
    paths = {path.relative_to(tree.root).as_posix(): path for path in tree.root.rglob("*")} | dict(extra_files)
    with (
        out.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, path in [("", tree.root), *sorted(paths.items())]:
            entry = tarfile.TarInfo(f"{top}/{name}".rstrip("/"))
            entry.mtime = epoch
            if path.is_dir():
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o755
                archive.addfile(entry)
                continue
            entry.mode, entry.size = _mode(path), path.stat().st_size
            with path.open("rb") as data:
                archive.addfile(entry, data)


def _mode(path: Path) -> int:
    """Read-only; programs and shared libraries are executable."""
    return 0o555 if _is_elf(path) else 0o444


def _compile_static(source: str, program: Path, *libraries: str) -> None:
    strict = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare")
    place = Path(__file__).with_name(source)
    subprocess.run(["cc", *strict, "-static", "-o", program, place, *libraries, "-s", "-Wl,--build-id=none"], check=True)


def machine() -> str:
    """The machine in the name of the file: x86_64 or aarch64."""
    return platform.machine()
