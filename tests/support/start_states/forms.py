"""Brokers and controllers in health, as operators have them: their log directories and their ``server.properties``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .building import METADATA, NODE, PAYMENTS, log_dir, zookeeper_log_dir
from .healthy import empty_partition, killed, never_started

KRAFT_BROKER = ("process.roles=broker", "node.id=1", "controller.quorum.voters=9@controller:9093")
COMBINED = ("process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@localhost:9093")
CONTROLLER = ("process.roles=controller", "node.id=1", "controller.quorum.voters=1@localhost:9093")
ZOOKEEPER = ("broker.id=1", "zookeeper.connect=localhost:2181")
MIGRATING = (*ZOOKEEPER, "zookeeper.metadata.migration.enable=true", "controller.quorum.voters=9@controller:9093")


@dataclass(frozen=True)
class Form:
    """A node in health.

    Attributes:
        build: makes its log directories below a directory that is empty.
        settings: lines of its ``server.properties``, without ``log.dirs``.
        log_dirs: names of its log directories.
        release: that starts it.
        is_live: a broker holds the log directories.
    """

    build: Callable[[Path], object]
    settings: tuple[str, ...] = KRAFT_BROKER
    log_dirs: tuple[str, ...] = ("data",)
    release: str = "4.3.1"
    is_live: bool = False

    def made(self, base: Path) -> Path:
        """Path of the ``server.properties``; the log directories are next to it."""
        self.build(base)
        path = base / "server.properties"
        listed = ",".join(str(base / name) for name in self.log_dirs)
        path.write_text("\n".join((*self.settings, f"log.dirs={listed}", "")))
        return path


def _jbod(base: Path) -> None:
    """Two disks of one broker; each has partitions, one is being moved to the other disk."""
    log_dir(base, name="d1")
    second = log_dir(base, NODE / "reborn-0", name="d2")
    shutil.copytree(PAYMENTS, second / f"payments-0.{'0' * 32}-future")


def _controller(base: Path) -> None:
    log_dir(base, METADATA)


def _combined(base: Path) -> None:
    """The node of a real cluster, with its metadata log and its partitions."""
    shutil.copytree(NODE, base / "data")


FORMS: dict[str, Form] = {
    "clean": Form(log_dir),
    "killed": Form(killed),
    "JBOD": Form(_jbod, log_dirs=("d1", "d2")),
    "controller only": Form(_controller, CONTROLLER),
    "broker only": Form(empty_partition),
    "combined": Form(_combined, COMBINED),
    "ZooKeeper": Form(zookeeper_log_dir, ZOOKEEPER, release="3.9.2"),
    "KRaft 3.9": Form(log_dir, release="3.9.2"),
    "never started": Form(never_started),
    "in migration": Form(zookeeper_log_dir, MIGRATING, release="3.9.2"),
    "live": Form(log_dir, is_live=True),
}
