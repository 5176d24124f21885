"""Disks that call themselves rotating, in trees like those of the kernel: some are believed."""

import os
from pathlib import Path

import pytest

from snaprebuild.errors import UsageError
from snaprebuild.storage.io_limits import block_device
from snaprebuild.storage.io_limits.block_device import READERS_VARIABLE, is_rotational, readers_at_once


def disk(
    sys: Path, minor: int, *, rotates: bool = True, bus: str | None = "scsi", vendor: str = "ATA", model: str = "ST8000NM0055"
) -> Path:
    """A disk with one partition, which has the next number; without a bus, one of no hardware."""
    node = sys / "devices" / f"disk{minor}"
    (node / "queue").mkdir(parents=True)
    (node / "queue" / "rotational").write_text(f"{rotates:d}\n")
    (node / "part").mkdir()
    (sys / "dev" / "block").mkdir(parents=True, exist_ok=True)
    (sys / "dev" / "block" / f"8:{minor}").symlink_to(node)
    (sys / "dev" / "block" / f"8:{minor + 1}").symlink_to(node / "part")
    if bus is not None:
        (sys / "bus" / bus).mkdir(parents=True, exist_ok=True)
        (node / "device").mkdir()
        (node / "device" / "subsystem").symlink_to(sys / "bus" / bus)
        (node / "device" / "vendor").write_text(f"{vendor:8}\n")
        (node / "device" / "model").write_text(f"{model:16}\n")
    return node


def stacked(sys: Path, minor: int, *below: Path) -> Path:
    """One like those of LVM or RAID, which says what the disks below it say."""
    node = disk(sys, minor, bus=None)
    (node / "slaves").mkdir()
    for each in below:
        (node / "slaves" / each.name).symlink_to(each)
    return node


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({}, True),
        ({"rotates": False}, False),
        ({"bus": "virtio", "vendor": "0x1af4", "model": ""}, False),
        ({"bus": "xen"}, False),
        ({"bus": "nvme"}, False),
        ({"bus": None}, False),
        ({"vendor": "QEMU", "model": "QEMU HARDDISK"}, False),
        ({"vendor": "ATA", "model": "QEMU HARDDISK"}, False),
        ({"vendor": "ATA", "model": "VBOX HARDDISK"}, False),
        ({"vendor": "Msft", "model": "Virtual Disk"}, False),
        ({"vendor": "VMware", "model": "Virtual disk"}, False),
        ({"vendor": "Google", "model": "PersistentDisk"}, False),
    ],
)
def test_what_is_believed(reported: dict[str, object], expected: bool, tmp_path: Path) -> None:
    """The answer holds for a disk and for its partition, which has no queue of its own."""
    disk(tmp_path, 0, **reported)  # type: ignore[arg-type]
    assert [is_rotational(os.makedev(8, minor), tmp_path) for minor in (0, 1)] == [expected, expected]


def test_devices_upon_devices(tmp_path: Path) -> None:
    """One real spindle below is enough; a virtual disk below is none, though all above it repeat what it says."""
    real, virtual = disk(tmp_path, 0), disk(tmp_path, 2, bus="virtio")
    upon_virtual = stacked(tmp_path, 4, virtual / "part")
    stacked(tmp_path, 6, upon_virtual)
    stacked(tmp_path, 8, upon_virtual, real / "part")
    assert [is_rotational(os.makedev(8, minor), tmp_path) for minor in (4, 6, 8)] == [False, False, True]


def test_a_device_of_which_nothing_is_known(tmp_path: Path) -> None:
    assert is_rotational(os.makedev(4095, 255)) is False
    assert is_rotational(os.stat("/proc").st_dev) is False
    assert is_rotational(os.makedev(8, 0), tmp_path) is False


def test_the_number_of_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_device, "is_rotational", lambda device: device == 1)
    assert [readers_at_once(device, 8) for device in (0, 1)] == [8, 1]
    monkeypatch.setenv(READERS_VARIABLE, "3")
    assert [readers_at_once(device, 8) for device in (0, 1)] == [3, 3]
    assert readers_at_once(0, 2) == 2
    for wrong in ("0", "-1", "two", "1.5", "²"):
        monkeypatch.setenv(READERS_VARIABLE, wrong)
        with pytest.raises(UsageError, match=READERS_VARIABLE):
            readers_at_once(0, 8)
