"""The container image: what its layout holds, and runs in podman without a network, without root and on a read-only root."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_dirs import snapshots_in, truth
from manifests import FIXTURES
from podman import IMAGE, Podman, made
from sentences import PROCESS_HAS

USER = 65532
FIXTURE = "kafka27-mixed"
STATE = "/var/lib/snaprebuild"
SECONDS_MAX = 300
HOLDS_THE_LOCK = """
import fcntl, sys
lock = open("/data/logs/.lock", "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
"""Until its input ends: what is process 1 of a container ignores SIGTERM."""


def small_release(place: Path) -> Path:
    """One of a single program."""
    tree = place / "snaprebuild-0.1.0-linux-x86_64"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "snaprebuild").write_text("program")
    with tarfile.open(place / f"{tree.name}.tar.gz", "w:gz") as archive:
        archive.add(tree, tree.name)
    (place / f"{tree.name}.cdx.json").write_text(
        json.dumps({"metadata": {"component": {"licenses": [{"expression": "Apache-2.0 AND MIT"}]}}})
    )
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
    assert config["config"]["Volumes"] == {STATE: {}}, "a container without options has a place for receipts"
    environment = dict(each.split("=", 1) for each in config["config"]["Env"])
    assert environment["HOME"] == STATE
    assert f"{environment['XDG_STATE_HOME']}/snaprebuild" == STATE
    labels = config["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert labels["org.opencontainers.image.revision"] == "0" * 40
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0 AND MIT", "of the bill of materials"
    (tmp_path / "layer").write_bytes(plain)
    with tarfile.open(tmp_path / "layer") as layer:
        entries = {entry.name: entry for entry in layer}
    assert {"opt/snaprebuild/bin/snaprebuild", "opt/snaprebuild/bill-of-materials.cdx.json", "tmp"} <= entries.keys()
    writable = {name for name, entry in entries.items() if entry.isdir() and entry.mode & 0o002}
    assert writable == {"tmp", "var/lib/snaprebuild"}


class Volume:
    """Containers of the image over one volume, without a network, rights, or a root that can be written to."""

    def __init__(self, podman: Podman, data: Path) -> None:
        self.podman, self.data = podman, data

    def command(self, *words: str) -> list[str]:
        """A container."""
        isolated = ("--rm", "--network", "none", "--read-only", "--cap-drop", "all", "--volume", f"{self.data}:/data")
        return self.podman.command("run", *isolated, *words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command of the image."""
        command = self.command(IMAGE, *words)
        return subprocess.run(
            command, env=self.podman.environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )


@pytest.fixture(scope="module")
def volume(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volume]:
    podman = Podman(tmp_path_factory.mktemp("podman"))
    podman.load(release)
    data = tmp_path_factory.mktemp("volume") / "data"
    data.mkdir()
    shutil.copytree(FIXTURES / FIXTURE / "logs", data / "logs")
    (data / "logs" / ".lock").touch()
    for path in (data, *data.rglob("*")):
        os.chown(path, USER, USER)
    yield Volume(podman, data)
    podman.remove()


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start these containers")
def test_commands_in_containers(volume: Volume) -> None:
    """One after the other on one volume, as on a page: a scan, a rebuild elsewhere, and a repair in two steps."""
    scanned = volume.run("scan", "/data/logs")
    assert scanned.returncode == 1, scanned.stderr
    assert scanned.stdout.startswith("14 snapshots missing in 2 of 4 partitions")

    rebuilt = volume.run("rebuild", "/data/logs", "--out", "/data/out", "--boundaries", "all", "--receipt", "/data/receipt")
    assert rebuilt.returncode == 0, rebuilt.stderr
    partitions = sorted(each.name for each in (FIXTURES / FIXTURE / "logs").iterdir() if each.is_dir())
    assert {each: snapshots_in(volume.data / "out" / each) for each in partitions} == {
        each: truth(FIXTURE, each) for each in partitions
    }

    staged = volume.run("stage", "/data/logs", "--to", "/data/staged")
    assert staged.returncode == 0, staged.stderr

    started = volume.command("--interactive", "--entrypoint", "/opt/snaprebuild/bin/python3.11", IMAGE, "-c", HOLDS_THE_LOCK)
    with subprocess.Popen(
        started, env=volume.podman.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "locked\n"
        refused = volume.run("install", "--plan", "/data/staged/plan.jsonl", "--receipt", "/data/staged/receipt")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert ".lock" in refused.stdout + refused.stderr

    installed = volume.run("install", "--plan", "/data/staged/plan.jsonl", "--receipt", "/data/staged/receipt")
    assert installed.returncode == 0, installed.stderr
    assert volume.run("scan", "/data/logs").returncode in (0, 1)
    assert volume.run("verify", "--written-by", "/data/staged/receipt").returncode == 0
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (volume.data / "logs").rglob("*.snapshot")}
    assert owners == {(USER, USER)}


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start these containers")
def test_the_image_says_what_it_is(volume: Volume) -> None:
    assert volume.run("--version").stdout == "snaprebuild 0.1.0\n"
    shown = volume.podman.run("image", "inspect", IMAGE)
    (described,) = json.loads(shown.stdout)
    assert described["User"] == f"{USER}:{USER}"
    assert "LGPL-2.1-or-later" in described["Labels"]["org.opencontainers.image.licenses"]
    assert described["Size"] < 150_000_000


# --- users ------------------------------------------------------------------------------------------------------------------

BROKER = 1001
RANDOM = 1_000_650_000
"""A user id as OpenShift gives to a namespace; the group is 0, and the group of the volume is another one."""

ALLOWED = ("--cap-drop", "all", "--read-only", "--read-only-tmpfs=false")
HEALTHY = {
    "the default user": (USER, ()),
    "user and group of the broker": (BROKER, ("--user", f"{BROKER}:{BROKER}")),
    "a random user of group 0": (RANDOM, ("--user", f"{RANDOM}:0", "--group-add", str(RANDOM))),
    "root": (BROKER, ("--user", "0:0", "--cap-add", "CHOWN,FOWNER,DAC_OVERRIDE")),
}
GROUP_DIFFERS = (
    f"{PROCESS_HAS}{BROKER}, gid 0: the group differs. "
    f"Run as uid {BROKER}, gid {BROKER} (of a container: --user {BROKER}:{BROKER}), or as root"
)
REFUSED = {
    "no group": (BROKER, ("--user", str(BROKER)), GROUP_DIFFERS),
    "the default user on files of another": (BROKER, (), f"{PROCESS_HAS}{USER}, gid {USER}"),
    "root without capabilities": (BROKER, ("--user", "0:0"), f"{PROCESS_HAS}0, gid 0"),
}


def logs_of(owner: int, place: Path) -> Path:
    """Log directories whose files belong to an owner, and that its user may enter."""
    for each in (place, *place.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    logs = place / "logs"
    shutil.copytree(FIXTURES / FIXTURE / "logs", logs)
    for path in (logs, *logs.rglob("*")):
        os.chown(path, owner, owner)
    return logs


def before_start(podman: Podman, logs: Path, options: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Prepares a start without ``--receipt``; what starts prints the version."""
    words = ("--rm", "--network", "none", *ALLOWED, *options, "--volume", f"{logs}:/data/logs", IMAGE)
    return podman.run("run", *words, "before-start", "/data/logs", "--", "snaprebuild", "--version")


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start these containers")
@pytest.mark.parametrize("case", HEALTHY)
def test_every_user_has_a_place_for_receipts(case: str, volume: Volume, tmp_path: Path) -> None:
    """On a root that cannot be written to, first with the volume of the container itself, then with a named one."""
    owner, options = HEALTHY[case]
    logs = logs_of(owner, tmp_path)
    before = {path.relative_to(logs) for path in logs.rglob("*")}
    done = before_start(volume.podman, logs, options)
    assert done.stdout.endswith("snaprebuild 0.1.0\n")
    assert "14 snapshots written; 0 not written" in done.stderr
    assert f"receipt {STATE}/snaprebuild-receipt-" in done.stderr
    written = [path for path in logs.rglob("*") if path.relative_to(logs) not in before]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {(owner, owner)}
    assert {path.suffix or path.name for path in written} == {".snapshot", ".lock"}
    for path in written:
        path.unlink()
    name = f"state-{owner}-{len(options)}"
    before_start(volume.podman, logs, (*options, "--volume", f"{name}:{STATE}"))
    state = Path(volume.podman.run("volume", "inspect", "--format", "{{.Mountpoint}}", name).stdout.strip())
    (receipt,) = state.iterdir()
    words = (
        "--rm",
        "--network",
        "none",
        *ALLOWED,
        *options,
        "--volume",
        f"{logs}:/data/logs",
        "--volume",
        f"{name}:{STATE}",
        IMAGE,
    )
    undone = volume.podman.run("run", *words, "undo", f"{STATE}/{receipt.name}")
    assert "14 snapshots" in undone.stdout
    assert {path.relative_to(logs) for path in logs.rglob("*")} - before <= {Path(".lock")}


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start these containers")
@pytest.mark.parametrize("case", REFUSED)
def test_a_user_who_may_not_write_is_refused_with_the_cause(case: str, volume: Volume, tmp_path: Path) -> None:
    """CMD is started all the same, and nothing is left."""
    owner, options, text = REFUSED[case]
    logs = logs_of(owner, tmp_path)
    before = {path.relative_to(logs) for path in logs.rglob("*")}
    done = before_start(volume.podman, logs, options)
    assert done.stdout.endswith("snaprebuild 0.1.0\n")
    assert text in done.stderr
    assert f"--user {BROKER}:{BROKER}" in done.stderr
    assert {path.relative_to(logs) for path in logs.rglob("*")} == before
