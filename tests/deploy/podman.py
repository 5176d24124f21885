"""podman for tests, with an own store; and the image of a release, loaded into it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manifests import REPOSITORY
from releases import EPOCH

BUILD = REPOSITORY / "scripts" / "deploy" / "image" / "oci_image.py"
IMAGE = "localhost/snaprebuild:0.1.0"
SECONDS = 300
HOST_DIRECTORIES = ("/usr", "/lib", "/lib64", "/bin", "/etc")
"""Directories that a program of this machine needs in a container of the image without files."""

RUNTIME = """#!{python}
# Drops the limits of processes from a container: inside of other containers they may not be set.
import json, os, sys
if "--bundle" in sys.argv:
    file = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
    container = json.load(open(file))
    container["process"].pop("rlimits", None)
    json.dump(container, open(file, "w"))
os.execv("{runc}", ["runc", *sys.argv[1:]])
"""

SETTINGS = """
[engine]
runtime = "runc"
events_logger = "file"
cgroup_manager = "cgroupfs"
[engine.runtimes]
runc = ["{runtime}"]
"""


def made(release: Path) -> Path:
    """The image of a release, which is made next to it."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH), "SOURCE_COMMIT": "0" * 40}
    subprocess.run([sys.executable, BUILD, release], env=environment, check=True, capture_output=True)
    (found,) = release.glob("*.oci.tar")
    return found


def missing() -> str | None:
    """Names the programs of podman that are absent here; None if all are there."""
    absent = [name for name in ("podman", "runc", "catatonit") if shutil.which(name) is None]
    return f"{' and '.join(absent)} missing" if absent else None


class Podman:
    """podman with a store of its own below ``root``."""

    def __init__(self, root: Path) -> None:
        reason = missing()
        if reason is not None:
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        self._root = root
        self._runtime_state = tempfile.mkdtemp(prefix="podman-")
        """Not below ``root``, whose name grows with the runs of pytest: podman takes 50 characters."""
        runtime, settings = root / "runc", root / "containers.conf"
        runtime.write_text(RUNTIME.format(python=shutil.which("python3"), runc=shutil.which("runc")))
        runtime.chmod(0o755)
        settings.write_text(SETTINGS.format(runtime=runtime))
        self.environment = {**os.environ, "CONTAINERS_CONF": str(settings)}

    def command(self, *arguments: object) -> list[str]:
        """The words of a subcommand, which needs ``environment``."""
        return ["podman", "--root", str(self._root / "store"), "--runroot", self._runtime_state, *map(str, arguments)]

    def run(self, *arguments: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Runs a subcommand, whose exit code must be ``code``, or any."""
        command = self.command(*arguments)
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert code is None or done.returncode == code, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def load(self, release: Path) -> None:
        """Makes the image of a release, and loads it as ``IMAGE``."""
        place = self._root / "image"
        place.mkdir()
        for path in release.glob("*-linux-*"):
            (place / path.name).symlink_to(path)
        loaded = self.run("pull", "--quiet", f"oci-archive:{made(place)}").stdout.strip()
        self.run("tag", loaded, IMAGE)

    def build(self, name: str, *lines: str) -> None:
        """Builds an image from nothing and the lines of a Containerfile."""
        context = self._root / "no files"
        context.mkdir()
        file = self._root / "Containerfile"
        file.write_text("\n".join(("FROM scratch", *lines, "")))
        self.run("build", "--quiet", "--tag", f"localhost/{name}", "--file", file, context)

    def remove(self) -> None:
        """The containers and images of this store, and what it mounted."""
        self.run("rm", "--all", "--force", code=None)
        self.run("rmi", "--all", "--force", code=None)
        subprocess.run(["umount", self._root / "store" / "overlay"], check=False, capture_output=True)
        shutil.rmtree(self._runtime_state, ignore_errors=True)

    @contextlib.contextmanager
    def pod(self, specification: dict[str, Any]) -> Iterator[None]:
        """A pod from a specification of the cluster's API, on the network of this machine, removed at the end."""
        specification["metadata"]["annotations"] = {"io.podman.annotations.init.container.type": "always"}
        file = self._root / "pod.yaml"
        file.write_text(json.dumps(specification))
        try:
            self.run("kube", "play", "--network", "host", file)
            yield
        finally:
            self.run("kube", "down", file, code=None)

    def logs(self, container: str) -> str:
        """Output of a container so far, both streams."""
        done = self.run("logs", container)
        return done.stdout + done.stderr
