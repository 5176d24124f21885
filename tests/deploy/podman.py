"""Containers and pods of podman, from images that are made of files of this machine alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = 300
HOST_DIRECTORIES = ("/usr", "/lib", "/lib64", "/bin", "/etc")
"""What a program of this machine needs in a container of the image without files."""

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


def missing() -> str | None:
    """What podman lacks here."""
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
        runtime, settings = root / "runc", root / "containers.conf"
        runtime.write_text(RUNTIME.format(python=shutil.which("python3"), runc=shutil.which("runc")))
        runtime.chmod(0o755)
        settings.write_text(SETTINGS.format(runtime=runtime))
        self._environment = {**os.environ, "CONTAINERS_CONF": str(settings)}

    def run(self, *arguments: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Runs a subcommand, whose exit code must be ``code``, or any."""
        store = ("--root", self._root / "store", "--runroot", self._root / "run")
        command = ["podman", *map(str, (*store, *arguments))]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert code is None or done.returncode == code, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def image(self, name: str, *lines: str, files: Path | None = None) -> None:
        """Builds an image from nothing and the lines of a Containerfile."""
        context = files or self._root / "no files"
        context.mkdir(exist_ok=True)
        file = self._root / "Containerfile"
        file.write_text("\n".join(("FROM scratch", *lines, "")))
        self.run("build", "--quiet", "--tag", f"localhost/{name}", "--file", file, context)

    def snaprebuild_image(self, archive: Path) -> None:
        """The image ``snaprebuild:0.1.0`` of the unpacked tree of a release."""
        files = self._root / "files"
        with tarfile.open(archive) as tree:
            tree.extractall(files, filter="tar")
        (directory,) = files.iterdir()
        self.image(
            "snaprebuild:0.1.0",
            f"COPY {directory.name} /opt/snaprebuild",
            "ENV PATH=/opt/snaprebuild/bin",
            "USER 65532",
            files=files,
        )

    @contextlib.contextmanager
    def pod(self, specification: dict[str, Any]) -> Iterator[None]:
        """A pod of the cluster's own form, on the network of this machine, removed at the end."""
        specification["metadata"]["annotations"] = {"io.podman.annotations.init.container.type": "always"}
        file = self._root / "pod.yaml"
        file.write_text(json.dumps(specification))
        try:
            self.run("kube", "play", "--network", "host", file)
            yield
        finally:
            self.run("kube", "down", file, code=None)

    def logs(self, container: str) -> str:
        """What a container printed so far, both streams."""
        done = self.run("logs", container)
        return done.stdout + done.stderr
