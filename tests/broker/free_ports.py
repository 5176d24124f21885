"""Ports on loopback that no one listens on."""

import random
import socket
from pathlib import Path

PORTS = range(20_000, 32_000)
"""Below the range from which the kernel gives outgoing connections theirs."""


def free_ports(count: int) -> list[int]:
    """Ports that this process has until it ends: no other one that runs tests gets them, also while nothing listens on them."""
    found: list[int] = []
    for port in random.Random().sample(PORTS, len(PORTS)):
        if _is_reserved_here(port) and _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def kept_ports(file: Path, count: int, *, in_use: bool) -> list[int]:
    """The ports that the file remembers, while they are free or in use by whom they are kept for; else others, which it remembers
    then."""
    if file.exists():
        ports = [int(port) for port in file.read_text().split()]
        if len(ports) == count and (in_use or all(map(_is_free, ports))):
            return ports
    ports = free_ports(count)
    file.write_text(" ".join(map(str, ports)) + "\n")
    return ports


def _is_reserved_here(port: int) -> bool:
    """Binds a name of Linux that exists once on this machine, and that the kernel frees when the process ends."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0snaprebuild-tests-port-{port}")
    except OSError:
        name.close()
        return False
    name.detach()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server binds that will listen here: connections of an earlier one that linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
