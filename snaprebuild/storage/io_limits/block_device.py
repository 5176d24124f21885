"""Whether a disk has a spindle: it decides how many readers use the disk at once.

Linux reports this for each block device, but the report of a virtual machine is not reliable. Virtio disks report that they rotate,
because that is the default of a queue and nothing changes it. Such a disk is a share of some storage system, and one reader at a
time leaves that idle.
So only a disk of real hardware is believed. ``READERS_VARIABLE`` overrides the report.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from snaprebuild.errors import UsageError

__all__ = ["READERS_VARIABLE", "is_rotational", "readers_at_once"]

READERS_VARIABLE = "SNAPREBUILD_JOBS_PER_DISK"
"""Environment variable: number of readers for each device, whatever the device is."""

VIRTUAL_BUSES = ("virtio", "xen", "vmbus", "nvme")
"""Kernel subsystems of disks that never rotate, or whose host does not report whether they do."""

VIRTUAL_VENDORS = ("qemu", "msft", "vmware", "google", "xen", "amazon", "alibaba", "virtio", "vbox", "ovirt", "nutanix")
"""Names that virtual SCSI and ATA disks give as vendor, or first in their model (``QEMU HARDDISK``)."""

STACKED_MAX = 8
"""Levels of devices upon devices (LVM upon RAID upon LUKS ...) that are followed down."""


def readers_at_once(device: int, most: int) -> int:
    """How many readers may use a device at the same time: one if it has a spindle.

    Args:
        device: its number.
        most: the result for a device without a spindle.

    Raises:
        UsageError: ``READERS_VARIABLE`` is set, and is no whole number from 1 on.
    """
    text = os.environ.get(READERS_VARIABLE, "")
    if text and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"${READERS_VARIABLE}: expected a whole number from 1 on")
    if text:
        return min(int(text), most)
    return 1 if is_rotational(device) else most


def is_rotational(device: int, sys: Path = Path("/sys")) -> bool:
    """Whether a block device has a spindle.

    Args:
        device: its number, ``st_dev`` of a file there.
        sys: where the kernel describes devices.

    Returns:
        False if it is unknown (network and memory file systems), and for virtual disks, whatever they report.
    """
    node = sys / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    return node.exists() and _rotates(node.resolve(), STACKED_MAX)


def _rotates(node: Path, deep: int) -> bool:
    disk = node if (node / "queue").is_dir() else node.parent  # a partition has no queue of its own: its disk has
    below = _below(disk)
    if below:  # LVM, RAID and encryption take over the values of the disks below them
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
