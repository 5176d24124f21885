"""Ports of brokers that start at the same time."""

import subprocess
import sys
from pathlib import Path

import free_ports
import pytest

FOLDER = Path(free_ports.__file__).parent


def test_a_port_is_given_to_one_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on them yet: without a reservation two brokers of two processes got the same port now and then."""
    few = range(31_000, 31_100)
    monkeypatch.setattr(free_ports, "PORTS", few)
    code = f"import free_ports; free_ports.PORTS = {few}; print(*free_ports.free_ports(30), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        its_own = {int(port) for port in other.stdout.readline().split()}
        ours = {*free_ports.free_ports(30), *free_ports.free_ports(20)}
        other.communicate("\n")
    assert len(its_own) == 30
    assert len(ours) == 50
    assert not its_own & ours
