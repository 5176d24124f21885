#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: release
"""Builds a release into one directory (docs/guides/install.md).

The directory gets the wheel, the sdist, and one self-contained file for this machine, with its own Python and without Spark. Next to them
are the content of this file as a tree, its bill of materials, licences, the man page, completions, provenance, and SHA256SUMS.
Packages are those of scripts/release/locked, checked by their hashes.
The Python is /usr/bin/python3; PYTHON names another.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import typer
from debian_packages import static_library
from man_page import man_page
from one_file import machine, make_tree, write_archive, write_one_file
from one_file_bill import Part, bill_of_materials, notices, parts_of
from package_locks import LOCKS
from provenance import commit_of, statement

from snaprebuild import __version__
from snaprebuild.cli.completion import script
from snaprebuild.cli.main import app

ROOT = Path(__file__).resolve().parents[2]

COMPLETIONS = {"bash": "snaprebuild.bash", "zsh": "_snaprebuild", "fish": "snaprebuild.fish"}
"""File of each shell, named as the shell looks for it."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="scripts/release/make_release.py", description="Builds wheel, sdist, the self-contained file, and what goes with them."
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="where to (default: dist)")
    parser.add_argument("--packages", action="store_true", help="also a deb and an rpm; needs nfpm")
    parser.add_argument("--image", action="store_true", help="also a container image, as an OCI archive")
    parser.add_argument("--url", default="", help="address of the project's repository, for the page of the package index")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="sign SHA256SUMS with this key of ssh-keygen")
    options = parser.parse_args()
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        parser.error(f"{out} is not empty")
    epoch = release_epoch()
    os.environ |= {"SOURCE_DATE_EPOCH": str(epoch), "SOURCE_COMMIT": commit_of(ROOT), "PROJECT_URL": options.url}
    with tempfile.TemporaryDirectory(prefix="snaprebuild-release-") as work:
        parts = build(out, Path(work), epoch)
    for kind in ("packages", "image"):
        if getattr(options, kind):
            say(kind)
            subprocess.run([ROOT / "scripts" / "deploy" / kind / "build", out], check=True)
    arguments = {"packages": options.packages, "image": options.image, "url": options.url}
    locks = {path.relative_to(ROOT).as_posix(): sha256(path) for path in LOCKS}
    urls = [part.url.to_string() for part in parts if part.url.type != "pypi"]
    (out / f"snaprebuild-{__version__}.provenance.json").write_text(statement(ROOT, digests(out), arguments, epoch, locks, urls))
    sums = [f"{digest}  {name}" for name, digest in digests(out).items()]
    (out / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print(f"{out}: {len(sums)} files and SHA256SUMS")
    if options.sign:
        sign(out / "SHA256SUMS", options.sign)
    else:
        print("SHA256SUMS is not signed: --sign KEY signs it")


def digests(out: Path) -> dict[str, str]:
    """SHA-256 of each file of a release, by its name, in order."""
    return {path.relative_to(out).as_posix(): sha256(path) for path in sorted(out.rglob("*")) if path.is_file()}


def sign(file: Path, key: Path) -> None:
    """Writes `FILE.sig`, which `ssh-keygen -Y verify` checks (SECURITY.md).

    Raises:
        CalledProcessError: there is no such key, or it was not unlocked.
    """
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", key, file], check=True)


def release_epoch() -> int:
    """SOURCE_DATE_EPOCH, or else the time of the last commit."""
    if reported := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(reported)
    return int(subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def sha256(path: Path) -> str:
    """Hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(out: Path, work: Path, epoch: int) -> list[Part]:
    """Everything but packages, image, provenance and sums. Returns what the tree contains."""
    say("wheel and sdist")
    # Without isolation: hatchling is the one of scripts/release/locked.
    wheel_and_sdist: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(wheel_and_sdist, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (wheel,) = out.glob("*.whl")
    say("interpreter, packages, shared libraries")
    (work / "tree").mkdir()
    tree = make_tree(work / "tree", wheel, epoch)
    say("the one file")
    file = out / f"snaprebuild-{__version__}-linux-{machine()}"
    write_one_file(tree, file, work)
    parts = parts_of(tree, [static_library("libz.a"), static_library("libc.a")])
    bill = bill_of_materials(parts, tree, file.name, __version__, sha256(file), epoch)
    (out / f"{file.name}.cdx.json").write_text(bill)
    (out / "THIRD-PARTY-NOTICES.txt").write_text(notices(parts))
    shutil.copyfile(ROOT / "LICENSE", out / "LICENSE")
    say("the tree as an archive")
    licences = {name: out / name for name in ("LICENSE", "THIRD-PARTY-NOTICES.txt")}
    write_archive(tree, file.with_name(f"{file.name}.tar.gz"), epoch, licences)
    (out / "snaprebuild.1").write_text(man_page(f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d}"))
    (out / "completions").mkdir()
    for shell, name in COMPLETIONS.items():
        (out / "completions" / name).write_text(script(shell, typer.main.get_command(app)) + "\n")
    print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, Python {sys.version.split()[0]}")
    return parts


def say(what: str) -> None:
    """Progress."""
    print(f"scripts/release/make_release.py: {what} ...", file=sys.stderr)


if __name__ == "__main__":
    main()
