"""Packages of Debian that files of this machine came with, and what apt has newer. The standard library only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["installed_and_candidate", "needed_libraries", "owner", "packages_of_python", "static_library"]


def owner(place: Path) -> str | None:
    """The package that a file of this system came with; None if it came with none."""
    usual = str(place)
    for candidate in (usual, os.path.realpath(usual), usual.removeprefix("/usr")):
        reported = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True, check=False).stdout
        if reported:
            return reported.split(": ")[0].split(",")[0].strip()
    return None


def needed_libraries(path: Path) -> Iterator[tuple[str, str]]:
    """Names of the shared libraries that a file needs, directly or not, and where the loader of this system finds each."""
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        match = re.match(r"\s*(\S+) => (\S+|not found)", line)
        if match:
            yield match[1], match[2]


def static_library(name: str) -> Path:
    """A static library that the launcher has in it, such as libz.a."""
    reported = subprocess.run(["cc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
    return Path(os.path.realpath(reported))


def packages_of_python() -> list[str]:
    """Packages of this interpreter, its standard library, the shared libraries of both, and what the launcher is linked with.

    Empty if the interpreter came with no package.
    """
    interpreter = Path(os.path.realpath(sys.executable))
    if owner(interpreter) is None:
        return []
    standard_library = Path(sysconfig.get_path("stdlib"))
    files = {interpreter, standard_library / "os.py", standard_library / "argparse.py", *map(static_library, ("libz.a", "libc.a"))}
    files |= set(_libraries([interpreter, *(standard_library / "lib-dynload").glob("*.so")]))
    return sorted({package for package in map(owner, files) if package})


def _libraries(files: Iterable[Path]) -> Iterator[Path]:
    for path in files:
        for _, place in needed_libraries(path):
            if place.startswith("/"):
                yield Path(place)


def installed_and_candidate(package: str) -> tuple[str, str]:
    """Versions of a package: the one that is installed, and the newest that the lists of apt have."""
    reported = subprocess.run(["apt-cache", "policy", package], check=True, capture_output=True, text=True).stdout
    versions = dict(re.findall(r"^ +(Installed|Candidate): (\S+)$", reported, re.MULTILINE))
    return versions["Installed"], versions["Candidate"]
