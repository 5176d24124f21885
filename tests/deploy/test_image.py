"""The container image: what its layout holds, and runs in podman without a network, without root and on a read-only root."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from log_dirs import snapshots_in, truth
from manifests import FIXTURES, REPOSITORY

BUILD = REPOSITORY / "scripts" / "deploy" / "image" / "oci_image.py"
EPOCH = 1_700_000_000
USER = 65532
FIXTURE = "kafka27-mixed"
SECONDS_MAX = 300
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
"""Lower than those of this process: raising them needs a capability that root lacks in some places."""

HOLDS_THE_LOCK = """
import fcntl, sys
lock = open("/data/logs/.lock", "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
"""Until its input ends: what is process 1 of a container ignores SIGTERM."""


def made(release: Path) -> Path:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH), "SOURCE_COMMIT": "0" * 40}
    subprocess.run([sys.executable, BUILD, release], env=environment, check=True, capture_output=True)
    (found,) = release.glob("*.oci.tar")
    return found


def small_release(place: Path) -> Path:
    """One of a single program."""
    tree = place / "snaprebuild-0.1.0-linux-x86_64"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "snaprebuild").write_text("program")
    with tarfile.open(place / f"{tree.name}.tar.gz", "w:gz") as archive:
        archive.add(tree, tree.name)
    (place / f"{tree.name}.cdx.json").write_text('{"components": []}')
    return place


def test_the_layout_adds_up_and_is_the_same_each_time(tmp_path: Path) -> None:
    """Every digest and size is that of the bytes, as the specification of OCI images wants it."""
    path = made(small_release(tmp_path))
    first = path.read_bytes()
    assert made(tmp_path).read_bytes() == first
    with tarfile.open(path) as archive:
        files = {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}  # type: ignore[union-attr]
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}

    def blob(of: dict[str, object]) -> bytes:
        data = files[f"blobs/{str(of['digest']).replace(':', '/')}"]
        assert (of["size"], of["digest"]) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
        return data

    (listed,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(listed))
    config = json.loads(blob(manifest["config"]))
    (packed,) = manifest["layers"]
    plain = gzip.decompress(blob(packed))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(plain).hexdigest()}"]
    assert config["config"]["User"] == f"{USER}:{USER}"
    labels = config["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert labels["org.opencontainers.image.revision"] == "0" * 40
    (tmp_path / "layer").write_bytes(plain)
    with tarfile.open(tmp_path / "layer") as layer:
        entries = {entry.name: entry for entry in layer}
    assert {"opt/snaprebuild/bin/snaprebuild", "opt/snaprebuild/bill-of-materials.cdx.json", "tmp"} <= entries.keys()
    writable = {name for name, entry in entries.items() if entry.isdir() and entry.mode & 0o002}
    assert writable == {"tmp", "var/lib/snaprebuild"}


@dataclass
class Podman:
    """With a storage of its own."""

    options: list[str]
    data: Path

    def command(self, *words: str | Path) -> list[str]:
        """In a container."""
        isolated = ["--rm", "--network", "none", "--read-only", "--cap-drop", "all", *LIMITS, "--volume", f"{self.data}:/data"]
        return [*self.options, "run", *isolated, *map(str, words)]

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """The command of the image."""
        command = self.command("snaprebuild:0.1.0", *words)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


@pytest.fixture(scope="module")
def podman(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    program = shutil.which("podman")
    if program is None:
        pytest.skip("NOT RUN: podman is not installed")
    place = tmp_path_factory.mktemp("podman")
    image = tmp_path_factory.mktemp("image")
    for path in release.glob("*-linux-*"):
        (image / path.name).symlink_to(path)
    made(image)
    runtime = ["--runtime", "runc"] if shutil.which("runc") else []
    options = [program, "--root", str(place / "root"), "--runroot", str(place / "run"), *runtime]
    subprocess.run([*options, "pull", "--quiet", f"oci-archive:{next(image.glob('*.oci.tar'))}"], check=True, capture_output=True)
    data = place / "data"
    data.mkdir()
    shutil.copytree(FIXTURES / FIXTURE / "logs", data / "logs")
    (data / "logs" / ".lock").touch()
    for path in (data, *data.rglob("*")):
        os.chown(path, USER, USER)
    yield Podman(options, data)
    subprocess.run([*options, "rmi", "--all", "--force"], check=False, capture_output=True)
    subprocess.run(["umount", place / "root" / "overlay"], check=False, capture_output=True)


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start these containers")
def test_commands_in_containers(podman: Podman) -> None:
    """One after the other on one volume, as on a page: a scan, a rebuild elsewhere, and a repair in two steps."""
    scanned = podman.run("scan", "/data/logs")
    assert scanned.returncode == 1, scanned.stderr
    assert scanned.stdout.startswith("14 snapshots missing in 2 of 4 partitions")

    rebuilt = podman.run("rebuild", "/data/logs", "--out", "/data/out", "--boundaries", "all", "--receipt", "/data/receipt")
    assert rebuilt.returncode == 0, rebuilt.stderr
    partitions = sorted(each.name for each in (FIXTURES / FIXTURE / "logs").iterdir() if each.is_dir())
    assert {each: snapshots_in(podman.data / "out" / each) for each in partitions} == {
        each: truth(FIXTURE, each) for each in partitions
    }

    staged = podman.run("stage", "/data/logs", "--to", "/data/staged")
    assert staged.returncode == 0, staged.stderr

    started = podman.command(
        "--interactive", "--entrypoint", "/opt/snaprebuild/bin/python3.11", "snaprebuild:0.1.0", "-c", HOLDS_THE_LOCK
    )
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "locked\n"
        refused = podman.run("install", "/data/staged/plan.jsonl", "--receipt", "/data/staged/receipt")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert ".lock" in refused.stdout + refused.stderr

    installed = podman.run("install", "/data/staged/plan.jsonl", "--receipt", "/data/staged/receipt")
    assert installed.returncode == 0, installed.stderr
    assert podman.run("scan", "/data/logs").returncode in (0, 1)
    assert podman.run("verify", "--receipt", "/data/staged/receipt").returncode == 0
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (podman.data / "logs").rglob("*.snapshot")}
    assert owners == {(USER, USER)}


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start these containers")
def test_the_image_says_what_it_is(podman: Podman) -> None:
    assert podman.run("--version").stdout == "snaprebuild 0.1.0\n"
    shown = subprocess.run([*podman.options, "image", "inspect", "snaprebuild:0.1.0"], capture_output=True, text=True, check=True)
    (described,) = json.loads(shown.stdout)
    assert described["User"] == f"{USER}:{USER}"
    assert described["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert described["Size"] < 150_000_000
