"""A machine that systemd boots, with sshd on loopback and sudo: a copy-on-write view of this one, which stays as it is."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports
from manifests import REPOSITORY

SECONDS_MAX = 120.0
PACKAGES = ("libwrap0", "runit-helper", "openssh-client", "openssh-server", "openssh-sftp-server", "sudo")
NSPAWN = ("systemd-container", "libsystemd-shared")
NEEDED = ("apt-get", "dpkg", "unshare", "nsenter", "systemd", "ssh", "ssh-keygen")
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")

BOOT = """
mount -t tmpfs tmpfs "$work" && mkdir "$work/upper" "$work/inner" "$work/view"
mount -t overlay -o lowerdir=/,upperdir="$work/upper",workdir="$work/inner" overlay "$work/view"
mount --bind "$shared" "$work/view/mnt"
chroot "$work/view" /bin/sh -eux /mnt/setup
umount "$work/view/mnt"
mount -t tmpfs tmpfs /run # nspawn keeps its locks there
for each in $cgroups; do mkdir "$each/$name" && echo $$ > "$each/$name/cgroup.procs"; done
exec "$shared/nspawn/usr/bin/systemd-nspawn" --quiet --directory="$work/view" --machine="$name" --register=no --keep-unit \\
  --console=pipe --link-journal=no --resolv-conf=off --timezone=off $mounts --boot systemd.unit=machine.target
"""

SETUP = """
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d # no package starts a service
dpkg --install /mnt/*.deb
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/machine_key
cat > /etc/ssh/sshd_config <<END
Port {port}
ListenAddress 127.0.0.1
HostKey /etc/ssh/machine_key
AuthorizedKeysFile /etc/ssh/authorized
PasswordAuthentication no
PermitRootLogin no
UsePAM yes
Subsystem sftp internal-sftp
END
cp /mnt/key.pub /etc/ssh/authorized
cp /etc/ssh/machine_key.pub /mnt/machine_key.pub
printf '#!/bin/sh\nexec env PYTHONPATH={repository} {python} -m snaprebuild "$@"\n' > /usr/local/bin/snaprebuild
chmod 755 /usr/local/bin/snaprebuild
printf '[Unit]\\nWants=ssh.service\\n' > /etc/systemd/system/machine.target
ln -s /dev/null /etc/systemd/system/systemd-tmpfiles-setup.service # it would empty /tmp
{more}
"""


@dataclass(frozen=True)
class Machine:
    """One that runs.

    Attributes:
        leader: its first process, as this machine counts.
        variables: of Ansible, to reach it.
    """

    leader: int
    variables: dict[str, Any]

    def at(self, path: str) -> Path:
        """A path of the machine, for this process."""
        return Path(f"/proc/{self.leader}/root{path}")

    def run(self, *words: str) -> str:
        """Runs a command as the machine's root and returns its output."""
        command = ["nsenter", "--target", str(self.leader), "--all", "--", *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def missing() -> str | None:
    """The reason for which no machine can be booted here; None if there is none."""
    if os.geteuid() != 0:
        return "only root may boot a machine"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    return f"not on PATH: {', '.join(absent)}" if absent else None


def _download(shared: Path) -> None:
    """Packages of Debian, as they are; one step that needs the network."""
    for names, place in ((PACKAGES, shared), (NSPAWN, shared / "nspawn")):
        place.mkdir(exist_ok=True)
        done = subprocess.run(["apt-get", "download", "-qq", *names], cwd=place, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"NOT RUN: a machine with sshd and sudo: apt-get download: {done.stderr.strip()}")
    for package in (shared / "nspawn").glob("*.deb"):
        subprocess.run(["dpkg", "--extract", package, shared / "nspawn"], check=True)


@contextlib.contextmanager
def booted(place: Path, *, setup: str, tmpfs: Iterable[str] = (), readable: Iterable[Path] = ()) -> Iterator[Machine]:
    """Boots one, which runs what is on this machine. It powers off at the end.

    ``setup``: a script that root of the view runs before. ``tmpfs``: directories that become file systems of their own.
    ``readable``: directories of this machine that every user of it can read.
    """
    shared, work, (port,) = place / "shared", place / "work", free_ports(1)
    shared.mkdir()
    work.mkdir()
    _download(shared)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", shared / "key"], check=True)
    programs = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), *readable}
    visible = "".join(f"chmod o+x {shlex.quote(str(each))}\n" for path in programs for each in path.parents)
    (shared / "setup").write_text(SETUP.format(port=port, repository=REPOSITORY, python=sys.executable, more=visible + setup))
    name = f"snaprebuild-{port}"
    cgroups = [each for each in CGROUPS if Path(each, "cgroup.procs").exists()]
    environment = os.environ | {
        "work": str(work),
        "shared": str(shared),
        "name": name,
        "cgroups": " ".join(cgroups),
        "mounts": " ".join([*(f"--bind-ro={each}" for each in programs), *(f"--tmpfs={each}:mode=755" for each in tmpfs)]),
        "LD_LIBRARY_PATH": str(next((shared / "nspawn").glob("usr/lib/*/systemd"))),
    }
    log = place / "console"
    with log.open("w") as console:
        command = ["unshare", "--mount", "/bin/sh", "-eu", "-c", BOOT]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        leader = _leader(process, port, log)
        known = shared / "known_hosts"
        known.write_text(f"[127.0.0.1]:{port} {(shared / 'machine_key.pub').read_text()}")
        variables = {
            "ansible_connection": "ssh",
            "ansible_host": "127.0.0.1",
            "ansible_port": port,
            "ansible_ssh_private_key_file": str(shared / "key"),
            "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={known} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_remote_tmp": "~/.ansible/tmp",
        }
        yield Machine(leader, variables)
    finally:
        process.terminate()
        process.wait(SECONDS_MAX)
        for each in cgroups:
            subprocess.run(["find", f"{each}/{name}", "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], check=True)


def _leader(process: subprocess.Popen[bytes], port: int, log: Path) -> int:
    """Waits until sshd answers. Returns the id of the machine's first process."""
    deadline = time.monotonic() + SECONDS_MAX
    probe = ["ssh-keyscan", "-p", str(port), "127.0.0.1"]
    while not subprocess.run(probe, capture_output=True, check=False).stdout:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (leader,) = [each for each in children if "systemd" in Path(f"/proc/{each}/comm").read_text()]
    return int(leader)
