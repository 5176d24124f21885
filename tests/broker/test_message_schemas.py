"""The bundled schemas are those that Kafka publishes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kafka

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "message-schemas"


def test_schemas_are_those_of_the_jars() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
