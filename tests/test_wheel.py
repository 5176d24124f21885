"""The built wheel, in a clean environment: both packages are in it, and the command runs without the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.full  # pip needs the network

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "fixtures" / "kafka27-mixed"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (built,) = out.glob("snaprebuild-*.whl")
    return built


def test_both_packages_and_their_types_are_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in ("formats", "snaprebuild"):
        sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.py")}
        assert sources <= names
        assert f"{package}/py.typed" in names
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"formats", "snaprebuild"}


def test_it_runs_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=600)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True, capture_output=True, timeout=600)
    installed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], check=True, capture_output=True, text=True)
    names = {package["name"].lower() for package in json.loads(installed.stdout)}
    assert "snaprebuild" in names
    assert not names & {"pyspark", "py4j", "pandas", "pyarrow", "hypothesis", "pytest", "pydantic"}

    command = tmp_path / "venv" / "bin" / "snaprebuild"
    arguments = ["rebuild", str(FIXTURE), "--out", str(tmp_path / "out"), "--boundaries", "all", "--output", "json"]
    ran = subprocess.run([command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["totals"]["written"] == 23
    assert len(list((tmp_path / "out").rglob("*.snapshot"))) == 23
