"""A release for aarch64, which `scripts/release/aarch64` builds. It is run by emulation only, on no real machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command import COMMAND, run_process
from log_dirs import snapshots_in, truth
from manifests import FIXTURES, REPOSITORY
from podman import IMAGE, Podman
from releases import EPOCH

pytestmark = [pytest.mark.night, pytest.mark.root, pytest.mark.release]

FIXTURE = "kafka27-mixed"
HANDLER = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
PAGE_SIZE_MAX = 1 << 16
"""Bytes: of the kernel of RHEL 8 for aarch64, and the largest one there is."""
BUILD_SECONDS_MAX = 7200
SECONDS_MAX = 900
CHROOT = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`AARCH64_RELEASE=DIR` takes a release that was built before: emulated, the build takes many minutes."""
    if os.geteuid() != 0:
        pytest.skip("only root may change the root directory")
    if not HANDLER.exists() or "F" not in HANDLER.read_text().split("flags: ")[1].split()[0]:
        pytest.skip("NOT RUN: the one file for aarch64: programs for aarch64 do not start here (qemu-user-static, binfmt_misc)")
    built = os.environ.get("AARCH64_RELEASE")
    if built is None and shutil.which("debootstrap") is None:
        pytest.skip("NOT RUN: the one file for aarch64: debootstrap is not installed")
    out = Path(built or tmp_path_factory.mktemp("release"))
    if built is None:
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
        command = [REPOSITORY / "scripts" / "release" / "aarch64", out, "--packages", "--image"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX)
        assert done.returncode == 0, done.stderr[-4000:]
    (found,) = out.glob("snaprebuild-*-linux-aarch64")
    return found


def run_here(*arguments: str, at: Path) -> str:
    """Output and exit code of this checkout on this machine, with the Python that runs the tests."""
    done = run_process(*COMMAND, *arguments, cwd=at, env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
    return f"{done.stdout}exit code {done.exit_code}\n"


def test_in_an_empty_file_system(one_file: Path, tmp_path: Path) -> None:
    """Without a C library, a loader, a shell; at first without /proc. The same output and the same bytes as on this machine."""
    root = tmp_path / "root"
    for folder in ("proc", "dev", "tmp"):
        (root / folder).mkdir(parents=True)
    shutil.copy(one_file, root / "snaprebuild")
    shutil.copytree(FIXTURES / FIXTURE / "logs", root / "logs")
    begin = f"env -i {CHROOT} {root} /snaprebuild"
    script = f"""
        {begin} --version > {tmp_path}/version
        echo exit code $? >> {tmp_path}/version
        {begin} rebuild logs --out tmp/out --boundaries all > /dev/null || exit 9
        mount -t proc proc {root}/proc
        mount --bind /dev {root}/dev
        {begin} scan logs > {tmp_path}/scanned
        echo exit code $? >> {tmp_path}/scanned
        {begin} rebuild logs --out tmp/workers --boundaries all --jobs 2 > /dev/null || exit 9
    """
    command = ["unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "version").read_text() == run_here("--version", at=root)
    assert " mixed-0 " in (tmp_path / "scanned").read_text()
    assert (tmp_path / "scanned").read_text() == run_here("scan", "logs", at=root)
    run_here("rebuild", "logs", "--out", "tmp/here", "--boundaries", "all", at=root)
    partitions = sorted(each.name for each in (root / "logs").iterdir() if each.is_dir())
    for partition in partitions:
        assert snapshots_in(root / "tmp" / "out" / partition) == truth(FIXTURE, partition)
    for made in ("out", "workers"):
        compared = ["diff", "-r", "--exclude=snaprebuild-receipt-*", root / "tmp" / made, root / "tmp" / "here"]
        assert subprocess.run(compared, check=False).returncode == 0


def test_nothing_inside_needs_what_is_not_inside(one_file: Path, tmp_path: Path) -> None:
    """Each library that an ELF file asks for is there. All are for aarch64, and load with pages of 64 KiB."""
    subprocess.run(["tar", "--extract", "--file", f"{one_file}.tar.gz", "--directory", tmp_path], check=True)
    elf = [one_file, *(path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF")]
    assert len(elf) > 60
    inside = {path.name for path in elf} | {"ld-linux-aarch64.so.1"}
    for path in elf:
        shown = subprocess.run(["readelf", "-hdlW", path], capture_output=True, text=True, check=True).stdout
        assert "Machine:                           AArch64" in shown, path
        needed = {line.split("[")[1].rstrip("]") for line in shown.splitlines() if "(NEEDED)" in line}
        assert not needed - inside, path
        for line in shown.splitlines():
            if line.split()[:1] == ["LOAD"]:
                _, offset, address, *_, alignment = line.split()
                assert int(alignment, 16) >= PAGE_SIZE_MAX, path
                assert (int(offset, 16) - int(address, 16)) % PAGE_SIZE_MAX == 0, path
    (started,) = tmp_path.glob("*/bin/snaprebuild")
    for program in (one_file, started):
        assert "INTERP" not in subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
    shown = subprocess.run([started, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS_MAX).stdout
    assert shown == run_here("--version", at=tmp_path).partition("exit code 0")[0]


def test_packages(one_file: Path, tmp_path: Path) -> None:
    """They are for aarch64, and what the deb installs starts."""
    (deb,) = one_file.parent.glob("*.deb")
    (rpm,) = one_file.parent.glob("*.rpm")
    for command, architecture in (
        (("dpkg-deb", "--field", deb, "Architecture"), "arm64\n"),
        (("rpm", "--query", "--package", "--queryformat", "%{ARCH}\n", rpm), "aarch64\n"),
    ):
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == architecture
    subprocess.run(["dpkg-deb", "--extract", deb, tmp_path], check=True)
    installed = tmp_path / "usr" / "lib" / "snaprebuild" / "bin" / "snaprebuild"
    shown = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS_MAX).stdout
    assert f"{shown}exit code 0\n" == run_here("--version", at=tmp_path)


def test_image(one_file: Path, tmp_path: Path) -> None:
    """A container without a network and with a root that is read only."""
    podman = Podman(tmp_path)
    try:
        podman.load(one_file.parent)
        assert podman.run("image", "inspect", "--format", "{{.Architecture}}", IMAGE).stdout == "arm64\n"
        logs = FIXTURES / FIXTURE / "logs"
        isolated = ("--rm", "--network", "none", "--read-only", "--volume", f"{logs}:/logs:ro")
        scanned = podman.run("run", *isolated, IMAGE, "scan", "/logs", code=1).stdout
    finally:
        podman.remove()
    assert scanned.startswith("14 snapshots missing in 2 of 4 partitions")
