#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: python
"""Writes scripts/release/locked: each package that a release is built from, with its version and the SHA-256 of each of its files.

``bundled.txt`` names what users get, ``tools.txt`` what builds it; pip installs nothing else (``--require-hashes``). Versions are the
newest that pyproject.toml admits.

It needs the package index that pip is set up for, and `--check` also apt, whose lists root brings up to date.
The standard library only: nothing has to be installed first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from debian_packages import installed_and_candidate, packages_of_python
from dependency_groups import requirements

__all__ = ["BUNDLED", "LOCKS", "TOOLS", "pins"]

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "scripts" / "release" / "locked" / "bundled.txt"
TOOLS = ROOT / "scripts" / "release" / "locked" / "tools.txt"
LOCKS = (BUNDLED, TOOLS)

PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
GLIBC_MINORS = range(36, 4, -1)
"""Minor versions of glibc in manylinux, the newest first, as pip itself prefers: Debian 12 has glibc 2.36."""

HEAD = """\
# Written by scripts/release/package_locks.py. {about}
# Files for CPython {pythons} on Linux {machines}; versions are those for CPython {first}.
"""
ABOUT = {BUNDLED: "What the tree, the one file, the image, the deb and the rpm contain.", TOOLS: "What builds a release."}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="scripts/release/package_locks.py", description="Locks what a release is built from.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if anything newer is served")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory(prefix="snaprebuild-lock-") as work:
        pip = _own_pip(Path(work))
        newest = resolved(pip)
        if not check:
            write(pip, newest)
            return
        newer = [*newer_pins(newest), *newer_packages()]
        held_back = [*_held_back(pip, newest)]
    for line in held_back:
        print(f"held back by a range of pyproject.toml or of another package: {line}")
    for line in newer:
        print(f"newer: {line}")
    if newer:
        sys.exit(1)
    print("Everything that a release contains is the newest that the index and apt serve.")


def _own_pip(work: Path) -> list[str]:
    """The pip that comes with this Python, in an environment that holds nothing else."""
    venv.create(work / "venv", with_pip=True)
    return [str(work / "venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]


# --- versions and hashes --------------------------------------------------------------------------------------------------------


def resolved(pip: list[str]) -> dict[Path, dict[str, str]]:
    """The newest version of each package that pyproject.toml admits, by name, for each lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    bundled = _versions(_report(pip, project["project"]["dependencies"]))
    tools = _versions(_report(pip, [*_pinned(bundled), *requirements(project["dependency-groups"], "release")]))
    return {BUNDLED: bundled, TOOLS: {name: version for name, version in tools.items() if name not in bundled}}


def _report(pip: list[str], specifiers: Iterable[str], *options: str) -> list[dict[str, Any]]:
    """The report of pip about the distributions that it would install.

    Raises:
        CalledProcessError: no versions fit together, or the index cannot be reached.
    """
    command = [
        *pip,
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--use-pep517",
        "--report",
        "-",
        *options,
        *specifiers,
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    installs: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return installs


def _versions(report: list[dict[str, Any]]) -> dict[str, str]:
    versions = {_normalized(each["metadata"]["name"]): str(each["metadata"]["version"]) for each in report}
    return dict(sorted(versions.items()))


def _pinned(versions: Mapping[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in versions.items()]


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def write(pip: list[str], newest: Mapping[Path, Mapping[str, str]]) -> None:
    """Writes the locks: each version with the hashes of the files that a release for any of our machines may need."""
    versions = {name: version for each in newest.values() for name, version in each.items()}
    hashes: dict[str, set[str]] = {name: set() for name in versions}
    for python in PYTHONS:
        for machine in MACHINES:
            print(f"scripts/release/package_locks.py: CPython {python}, {machine} ...", file=sys.stderr)
            for each in _report(pip, _pinned(versions), "--no-deps", *_target(python, machine)):
                hashes[_normalized(each["metadata"]["name"])].add(_sha256(each["download_info"]["archive_info"]))
    BUNDLED.parent.mkdir(exist_ok=True)
    for path, pinned in newest.items():
        about = {"about": ABOUT[path], "pythons": ", ".join(PYTHONS), "machines": " and ".join(MACHINES), "first": PYTHONS[0]}
        lines = [f"{name}=={version}" + "".join(_options(hashes[name])) for name, version in pinned.items()]
        path.write_text(HEAD.format(**about) + "\n".join(lines) + "\n")
        print(f"{path.relative_to(ROOT)}: {len(lines)} packages")


def _options(hashes: Iterable[str]) -> Iterator[str]:
    for each in sorted(hashes):
        yield f" \\\n    --hash=sha256:{each}"


def _target(python: str, machine: str) -> Iterator[str]:
    """Options for another machine and Python than these. Source packages fit each."""
    # Nothing is written to it; an old pip takes the other options only with it.
    yield from ("--target", str(ROOT / "dist"))
    names = [f"manylinux_2_{minor}" for minor in GLIBC_MINORS]
    names[names.index("manylinux_2_17") : names.index("manylinux_2_17")] = ["manylinux2014"]
    for name in (*names, "linux"):
        yield from ("--platform", f"{name}_{machine}")
    yield from ("--python-version", python, "--implementation", "cp")


def _sha256(archive: Mapping[str, Any]) -> str:
    """The digest of an archive, which old and new versions of pip report under different names."""
    digest = archive.get("hashes", {}).get("sha256") or archive["hash"].removeprefix("sha256=")
    return str(digest)


# --- what is newer --------------------------------------------------------------------------------------------------------------


def pins(lock: Path) -> dict[str, str]:
    """Versions in a lock, by name."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))


def newer_pins(newest: Mapping[Path, Mapping[str, str]]) -> Iterator[str]:
    """One line for each package whose locked version is not the newest that pyproject.toml admits."""
    for path, versions in newest.items():
        locked = pins(path)
        for name in sorted(locked.keys() | versions.keys()):
            ours = locked.get(name, "not locked")
            theirs = versions.get(name, "not needed")
            if ours != theirs:
                yield f"{name} {ours}: the index has {theirs} ({path.relative_to(ROOT)})"


def newer_packages() -> Iterator[str]:
    """One line for each package of Debian that goes into a release, the Python before all, and is not the newest that apt has."""
    if os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
    packages = packages_of_python()
    if not packages:
        yield (
            f"perhaps Python: {sys.version.split()[0]} at {os.path.realpath(sys.executable)} belongs to no package, "
            "so no registry says whether it is the newest patch release"
        )
    for package in packages:
        installed, candidate = installed_and_candidate(package)
        if installed != candidate:
            yield f"{package} {installed}: apt has {candidate}"


def _held_back(pip: list[str], newest: Mapping[Path, Mapping[str, str]]) -> Iterator[str]:
    """One line for each bundled package of which the index has a newer version that pyproject.toml or another package does not admit."""
    alone = _versions(_report(pip, newest[BUNDLED], "--no-deps"))
    for name, version in newest[BUNDLED].items():
        if alone[name] != version:
            yield f"{name} {version}: the index has {alone[name]}"


if __name__ == "__main__":
    main()
