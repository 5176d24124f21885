"""Whether a disk has a spindle, which decides how many readers it is given at once.

Linux says so of each block device, and is not to be believed of a virtual machine's: virtio disks call themselves rotating because that is
what a queue begins with and nobody tells it otherwise. Behind them is a share of some storage system, which one reader at a time leaves
idle. So only a disk of real hardware is believed, and ``READERS_VARIABLE`` is for those who know better.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from snaprebuild.errors import UsageError

__all__ = ["READERS_VARIABLE", "is_rotational", "readers_at_once"]

READERS_VARIABLE = "SNAPREBUILD_JOBS_PER_DISK"
"""Of the environment: so many readers for each device, whatever it is."""

VIRTUAL_BUSES = ("virtio", "xen", "vmbus", "nvme")
"""Kernel subsystems of disks that never rotate, or whose host does not say whether they do."""

VIRTUAL_VENDORS = ("qemu", "msft", "vmware", "google", "xen", "amazon", "alibaba", "virtio", "vbox", "ovirt", "nutanix")
"""What virtual SCSI and ATA disks name as vendor, or first in their model (``QEMU HARDDISK``)."""

STACKED_MAX = 8
"""Devices upon devices (LVM upon RAID upon LUKS ...) that are gone down."""


def readers_at_once(device: int, most: int) -> int:
    """How many may read from a device side by side: one where it has a spindle.

    Args:
        device: its number.
        most: where it has none.

    Raises:
        UsageError: ``READERS_VARIABLE`` is set, and is no whole number from 1 on.
    """
    said = os.environ.get(READERS_VARIABLE, "")
    if said and not (said.isascii() and said.isdigit() and int(said) > 0):
        raise UsageError(f"${READERS_VARIABLE}: expected a whole number from 1 on")
    if said:
        return min(int(said), most)
    return 1 if is_rotational(device) else most


def is_rotational(device: int, sys: Path = Path("/sys")) -> bool:
    """Whether a block device has a spindle.

    Args:
        device: its number, ``st_dev`` of a file there.
        sys: where the kernel tells of devices.

    Returns:
        False where nothing tells (network and memory file systems), and of virtual disks, whatever they say.
    """
    node = sys / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    return node.exists() and _rotates(node.resolve(), STACKED_MAX)


def _rotates(node: Path, deep: int) -> bool:
    disk = node if (node / "queue").is_dir() else node.parent  # a partition has no queue of its own: its disk has
    below = _below(disk)
    if below:  # LVM, RAID and encryption take over what the disks below them say
        return deep > 0 and any(_rotates(each.resolve(), deep - 1) for each in below)
    return _text(disk / "queue" / "rotational") == "1" and not _is_virtual(disk)


def _below(disk: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted((disk / "slaves").iterdir())
    return []


def _is_virtual(disk: Path) -> bool:
    hardware = disk / "device"
    if not hardware.exists():  # loop devices, compressed memory
        return True
    bus = (hardware / "subsystem").resolve().name
    names = (_text(hardware / "vendor").lower(), _text(hardware / "model").lower())
    return bus in VIRTUAL_BUSES or any(name.startswith(VIRTUAL_VENDORS) for name in names)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""
