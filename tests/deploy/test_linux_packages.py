"""The deb and the rpm: installed, upgraded and removed in a copy-on-write view of this machine, which stays as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from manifests import FIXTURES, REPOSITORY
from releases import EPOCH

PACKAGES = REPOSITORY / "scripts" / "deploy" / "packages"
SECONDS_MAX = 900
NFPM = shutil.which("nfpm") or shutil.which("nfpm", path=str(Path.home() / "go" / "bin"))

VIEW = """
mount -t tmpfs tmpfs {work} && mkdir {work}/upper {work}/inner {work}/view || exit 9
mount -t overlay -o lowerdir=/,upperdir={work}/upper,workdir={work}/inner overlay {work}/view || exit 9
mount -t proc proc {work}/view/proc && mount --bind /dev {work}/view/dev || exit 9
mount --bind {shared} {work}/view/mnt || exit 9
exec chroot {work}/view /bin/sh -eux /mnt/script
"""

SETTING = "METRICS=/var/lib/elsewhere.prom"

ENABLED = """
systemctl enable snaprebuild-scan.timer
mkdir -p /var/lib/systemd/timers /var/lib/snaprebuild && touch /var/lib/systemd/timers/stamp-snaprebuild-scan.timer
touch /var/lib/snaprebuild/receipt.jsonl
test -L /etc/systemd/system/timers.target.wants/snaprebuild-scan.timer
"""

WRAPPED = """
mkdir -p /etc/systemd/system/kafka.service.d
cp /usr/share/doc/snaprebuild/before-start.conf /etc/systemd/system/kafka.service.d
"""

ERASED = """
find /etc /opt /usr /var -xdev -path /var/tmp -prune -o -newer /mnt/script -name '*snaprebuild*' -print > /tmp/left
test "$(grep -v '^/var/lib/dpkg/info/' /tmp/left | sort)" = "$(ls -d /etc/default/snaprebuild /var/lib/snaprebuild 2> /dev/null)"
test -e /var/lib/snaprebuild/receipt.jsonl
"""
"""Nothing of ours is left but receipts, and what dpkg keeps until it is purged."""

DEB = f"""
exec 2> /mnt/trace
dpkg --install /mnt/snaprebuild_0.1.0-1_*.deb
snaprebuild --version
cd / && snaprebuild scan /mnt/logs > /mnt/scanned || test $? = 1
dpkg --listfiles snaprebuild > /mnt/listed
test -z "$(find /etc/systemd -name '*snaprebuild*')"
useradd --system kafka || true
systemd-analyze verify --man=no snaprebuild-scan.timer snaprebuild-scan.service 2> /mnt/units
echo '{SETTING}' >> /etc/default/snaprebuild
dpkg --install /mnt/snaprebuild_0.2.0-1_*.deb
dpkg-query --show snaprebuild
grep '{SETTING}' /etc/default/snaprebuild
snaprebuild --version
{ENABLED}
{WRAPPED}
! dpkg --remove snaprebuild 2> /mnt/refused
grep kafka.service.d /mnt/refused
snaprebuild --version
rm -r /etc/systemd/system/kafka.service.d
dpkg --remove snaprebuild
{ERASED}
test -e /etc/default/snaprebuild
test ! -e /usr/lib/snaprebuild
test ! -e /usr/bin/snaprebuild
dpkg --purge snaprebuild
test ! -e /etc/default/snaprebuild
"""

RPM = f"""
exec 2> /mnt/trace
# The packages of this machine are not those of rpm: nothing is known of /bin/sh.
rpm="rpm --dbpath /var/tmp/rpm"
$rpm --install --nodeps /mnt/snaprebuild-0.1.0-1.*.rpm
snaprebuild --version
$rpm --verify --nodeps snaprebuild
$rpm --query --list snaprebuild > /mnt/listed
test -z "$(find /etc/systemd -name '*snaprebuild*')"
$rpm --upgrade --nodeps /mnt/snaprebuild-0.2.0-1.*.rpm
$rpm --query snaprebuild
snaprebuild --version
test -e /etc/sysconfig/snaprebuild && test ! -e /etc/default/snaprebuild
grep -x EnvironmentFile=/etc/sysconfig/snaprebuild /usr/lib/systemd/system/snaprebuild-scan.service
{ENABLED}
{WRAPPED}
! $rpm --erase snaprebuild 2> /mnt/refused
grep kafka.service.d /mnt/refused
snaprebuild --version
rm -r /etc/systemd/system/kafka.service.d
$rpm --erase snaprebuild
{ERASED}
test ! -e /etc/sysconfig/snaprebuild
test ! -e /usr/lib/snaprebuild
test ! -e /usr/bin/snaprebuild
"""


@pytest.mark.full
def test_units_and_scripts_are_as_systemd_and_a_shell_read_them(tmp_path: Path) -> None:
    """Each option of systemd is known, and no unit is installed as enabled."""
    for name in ("reload-units", "before-removal"):
        subprocess.run(["sh", "-n", PACKAGES / "files" / name], check=True)
    config = (PACKAGES / "nfpm.yaml").read_text()
    named = {path.name for path in (PACKAGES / "files").iterdir() if f"files/{path.name}" in config}
    assert named == {path.name for path in (PACKAGES / "files").iterdir()}
    assert ".wants/" not in config
    assert "systemctl enable" not in (PACKAGES / "files" / "reload-units").read_text()
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("NOT RUN: systemd-analyze is not installed")
    (tmp_path / "kafka.service.d").mkdir()
    (tmp_path / "kafka.service").write_text("[Service]\nType=exec\nExecStart=/bin/true\n")
    started = (PACKAGES / "files" / "before-start.conf").read_text().replace("/usr/bin/snaprebuild", "/bin/true")
    (tmp_path / "kafka.service.d" / "snaprebuild.conf").write_text(started)
    scan = (PACKAGES / "files" / "snaprebuild-scan.service").read_text()
    (tmp_path / "snaprebuild-scan.service").write_text(scan.replace("/usr/bin/snaprebuild", "/bin/true"))
    shutil.copy(PACKAGES / "files" / "snaprebuild-scan.timer", tmp_path)
    units = [tmp_path / name for name in ("kafka.service", "snaprebuild-scan.service", "snaprebuild-scan.timer")]
    done = subprocess.run(
        [analyze, "verify", "--man=no", *units],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not [line for line in done.stderr.splitlines() if str(tmp_path) in line], done.stderr


@pytest.fixture(scope="module")
def built(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of this release, and of the same contents as version 0.2.0."""
    if NFPM is None:
        pytest.skip("NOT RUN: nfpm is not installed: go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0")
    out = tmp_path_factory.mktemp("packages")
    environment = os.environ | {"PATH": f"{Path(NFPM).parent}:{os.environ['PATH']}", "SOURCE_DATE_EPOCH": str(EPOCH)}
    for version in ("0.1.0", "0.2.0"):
        place = out / version
        place.mkdir()
        shutil.copytree(release / "completions", place / "completions")
        shutil.copy(release / "snaprebuild.1", place)
        (archive,) = release.glob("*-linux-*.tar.gz")
        (bill,) = release.glob("*.cdx.json")
        (place / bill.name).symlink_to(bill)
        (place / archive.name.replace("0.1.0", version)).symlink_to(archive)
        subprocess.run([PACKAGES / "build", place], check=True, env=environment, capture_output=True)
    return out


def in_a_view(built: Path, suffix: str, script: str, place: Path) -> tuple[str, Path]:
    """Runs a script as root of the view. Returns what it prints, and the directory that it sees as /mnt."""
    (place / "work").mkdir()
    shared = place / "shared"
    shared.mkdir()
    for path in built.glob(f"*/*.{suffix}"):
        shutil.copy(path, shared)
    shutil.copytree(FIXTURES / "kafka27-mixed" / "logs", shared / "logs")
    (shared / "script").write_text(script)
    command = ["unshare", "--mount", "sh", "-c", VIEW.format(work=place / "work", shared=shared)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    trace = (shared / "trace").read_text() if (shared / "trace").exists() else ""
    assert done.returncode == 0, done.stdout + done.stderr + trace
    return done.stdout, shared


def of_the_tree(release: Path) -> set[str]:
    """Where the files of the archive are once they are installed."""
    (path,) = release.glob("*-linux-*.tar.gz")
    with tarfile.open(path) as archive:
        return {f"/usr/lib/snaprebuild/{each.name.partition('/')[2]}" for each in archive.getmembers() if each.isfile()}


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root directory")
def test_a_deb_is_installed_upgraded_and_removed(release: Path, built: Path, tmp_path: Path) -> None:
    said, shared = in_a_view(built, "deb", DEB, tmp_path)
    assert said.count("snaprebuild 0.1.0\n") == 3, "the contents of both are the same"
    assert "snaprebuild\t0.2.0-1\n" in said
    assert (shared / "scanned").read_text().startswith("14 snapshots missing in 2 of 4 partitions")
    assert of_the_tree(release) <= set((shared / "listed").read_text().splitlines())
    assert "snaprebuild" not in (shared / "units").read_text()


@pytest.mark.night
@pytest.mark.release
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root directory")
def test_an_rpm_is_installed_upgraded_and_removed(release: Path, built: Path, tmp_path: Path) -> None:
    """By rpm on this machine; no distribution that uses it was run."""
    if shutil.which("rpm") is None:
        pytest.skip("NOT RUN: rpm is not installed")
    said, shared = in_a_view(built, "rpm", RPM, tmp_path)
    assert said.count("snaprebuild 0.1.0\n") == 3
    assert "snaprebuild-0.2.0-1" in said
    assert of_the_tree(release) <= set((shared / "listed").read_text().splitlines())


@pytest.mark.night
@pytest.mark.release
def test_the_packages_name_what_they_hold_and_no_machine(release: Path, built: Path) -> None:
    (bill,) = release.glob("*.cdx.json")
    (whole,) = json.loads(bill.read_text())["metadata"]["component"]["licenses"]
    (deb,), (rpm,) = (list((built / "0.1.0").glob(f"*.{suffix}")) for suffix in ("deb", "rpm"))
    assert output("dpkg-deb", "--field", deb, "License") == whole["expression"]
    copyright_ = output("dpkg-deb", "--fsys-tarfile", deb, "|", "tar", "-xO", "./usr/share/doc/snaprebuild/copyright")
    assert "Apache License" in copyright_
    assert "GNU C Library" in copyright_
    if shutil.which("rpm") is None:
        pytest.skip("NOT RUN: rpm is not installed")
    assert output("rpm", "-qp", "--qf", "'%{LICENSE} %{BUILDHOST}'", rpm) == f"{whole['expression']} localhost"
    assert output("rpm", "-qpc", rpm) == "/etc/sysconfig/snaprebuild"


def output(*words: str | Path) -> str:
    return subprocess.run(["sh", "-c", " ".join(map(str, words))], check=True, capture_output=True, text=True).stdout.strip()


def test_the_metrics_file_is_where_the_unit_may_write() -> None:
    """`ProtectSystem=strict` makes everything else read-only, also for its owner."""
    unit = (PACKAGES / "files" / "snaprebuild-scan.service").read_text()
    assert "ProtectSystem=strict" in unit
    writable = {Path("/var/lib") / name for name in re.findall(r"^StateDirectory=(.+)$", unit, re.MULTILINE)}
    writable |= {Path(name.lstrip("-")) for name in re.findall(r"^ReadWritePaths=(.+)$", unit, re.MULTILINE)}
    (metrics,) = re.findall(r"^METRICS=(.+)$", (PACKAGES / "files" / "default").read_text(), re.MULTILINE)
    assert Path(metrics).parent in writable
    assert "ReadWritePaths=" in (PACKAGES / "files" / "default").read_text(), "how to write elsewhere"
