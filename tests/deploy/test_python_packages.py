"""The wheel in clean environments: pip of Debian 12, pipx, uv, Spark that finds the data sources, and an environment in an archive."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import FIXTURES, REPOSITORY

pytestmark = pytest.mark.full

LOGS = FIXTURES / "kafka4-mixed" / "logs"
SECONDS_MAX = 900
DEBIAN = Path("/usr/bin/python3")

ONE_CORE = "--master local[1] pyspark-shell"

READS = """
import sys
from pyspark.sql import SparkSession

session = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
for name in ("kafka_batch_headers", "kafka_producer_snapshot"):
    print(name, session.read.format(name).load(sys.argv[1]).count())
if len(sys.argv) > 2:
    place = session.range(1).rdd.map(lambda _: __import__("snaprebuild").__file__).collect()[0]
    print("imported from", place)
if len(sys.argv) == 2:
    from snaprebuild.spark import register

    register(session)
    print("registered", session.read.format("kafka_batch_headers").load(sys.argv[1]).count())
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Runs a command and returns its output. PYTHONPATH does not lead it to this checkout."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=variables | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, REPOSITORY, cwd=out)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs that the night tier installs: none of them is needed by the project."""
    place = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", place, cwd=place)
    run(place / "bin" / "pip", "install", "--quiet", "uv", "pipx", "venv-pack", cwd=place)
    return place / "bin"


@pytest.fixture
def java() -> None:
    """Without it the test is skipped, or fails with CI=true."""
    from snaprebuild.errors import UsageError

    try:
        from snaprebuild.spark.session import check_java

        check_java()
    except (ImportError, UsageError) as error:
        pytest.skip(f"NOT RUN: jobs of Apache Spark (marker spark): {error}")


def assert_scans(program: Path, cwd: Path) -> None:
    assert run(program, "scan", FIXTURES / "kafka27-mixed", cwd=cwd).startswith("14 snapshots missing in 2 of 4 partitions")


@pytest.mark.night
@pytest.mark.skipif(not DEBIAN.exists(), reason="NOT RUN: there is no /usr/bin/python3")
def test_the_first_words_of_an_old_pip_are_no_warning(wheel: Path, tmp_path: Path) -> None:
    """The command of README and of the page, with the Python of the system and the pip that comes with it."""
    page = (REPOSITORY / "docs" / "guides" / "install.md").read_text()
    (options,) = set(re.findall(r"/bin/pip install (--\S+) \S*snaprebuild-\S+\.whl", page))
    assert f"`pip install {options} .`" in (REPOSITORY / "README.md").read_text()
    run(DEBIAN, "-m", "venv", tmp_path / "own", cwd=tmp_path)
    # Wheels that were built here earlier would hide what pip says of a source package.
    said = run(tmp_path / "own" / "bin" / "pip", "install", options, wheel, cwd=tmp_path, PIP_NO_CACHE_DIR="1")
    assert "Successfully installed" in said
    assert not re.search("DEPRECATION|WARNING|error", said), said
    assert_scans(tmp_path / "own" / "bin" / "snaprebuild", tmp_path)


@pytest.mark.night
def test_pipx_and_uv(wheel: Path, tools: Path, tmp_path: Path) -> None:
    places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    run(tools / "pipx", "install", wheel, cwd=tmp_path, **places)
    assert_scans(tmp_path / "bin" / "snaprebuild", tmp_path)
    for words in (("uvx",), ("uv", "tool", "run")):
        said = run(tools / words[0], *words[1:], "--from", wheel, "snaprebuild", "--version", cwd=tmp_path, **places)
        assert "snaprebuild 0.1.0\n" in said
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "scripts/index_page.py", "snaprebuild", "formats"):
        source = REPOSITORY / name
        (checkout / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, checkout / name)
    said = run(tools / "uvx", "--from", ".", "snaprebuild", "scan", FIXTURES / "kafka27-mixed", cwd=checkout, **places)
    assert "14 snapshots missing in 2 of 4 partitions" in said


@pytest.mark.night
@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_spark_finds_the_data_sources_of_a_checkout(tmp_path: Path) -> None:
    """No call of `register`; and `register` is no error afterwards."""
    script = tmp_path / "reads.py"
    script.write_text(READS)
    found = REPOSITORY / "snaprebuild" / "spark" / "found_by_spark"
    reported = run(
        *(sys.executable, script, LOGS),
        cwd=tmp_path,
        PYTHONPATH=f"{REPOSITORY}:{found}",
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_SUBMIT_ARGS=ONE_CORE,
    )
    assert_reads(reported)
    assert f"registered {batches()}\n" in reported


def batches() -> int:
    """Counts the batches of the directory by the length that each begins with."""
    found = 0
    for path in LOGS.rglob("*.log"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            found += 1
    return found


def producers() -> int:
    """Counts the producers of the directory by the length of the snapshots: 10 bytes, and 46 of each producer. An empty one is a
    row, too."""
    return sum(max((path.stat().st_size - 10) // 46, 1) for path in LOGS.rglob("*.snapshot"))


def assert_reads(reported: str) -> None:
    assert f"kafka_batch_headers {batches()}\n" in reported, reported
    assert f"kafka_producer_snapshot {producers()}\n" in reported, reported


@pytest.mark.spark
@pytest.mark.night
@pytest.mark.usefixtures("java")
def test_spark_with_the_wheel_and_with_an_environment_in_an_archive(wheel: Path, tools: Path, tmp_path: Path) -> None:
    """The second with the commands of the page, on a cluster whose own Python has pyspark only."""
    environment, script = tmp_path / "environment", tmp_path / "reads.py"
    script.write_text(READS)
    run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    run(environment / "bin" / "pip", "install", "--quiet", "--use-pep517", f"{wheel}[spark]", cwd=tmp_path)
    local = {"PYSPARK_PYTHON": str(environment / "bin" / "python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    reported = run(environment / "bin" / "python", script, LOGS, cwd=tmp_path, **local, PYSPARK_SUBMIT_ARGS=ONE_CORE)
    assert_reads(reported)

    bare = tmp_path / "bare"
    run(sys.executable, "-m", "venv", "--without-pip", bare, cwd=tmp_path)
    (packages,) = bare.glob("lib/python3*/site-packages")
    for name in ("pyspark", "py4j"):
        (found,) = environment.glob(f"lib/python3*/site-packages/{name}")
        (packages / name).symlink_to(found)
    cluster = {"SPARK_CLUSTER_STATE": str(tmp_path / "state"), "PYTHON": str(bare / "bin" / "python")}
    page = (REPOSITORY / "docs" / "guides" / "spark.md").read_text()
    (pack, submit) = re.findall(r"^\$ (venv-pack .*|PYSPARK_PYTHON=.*)$", page, re.MULTILINE)
    started = run(REPOSITORY / "scripts" / "servers" / "spark-cluster", "start", "1", cwd=tmp_path, **cluster)
    try:
        master = started.splitlines()[0]
        paths = f"{environment}/bin:{tools}:{os.environ['PATH']}"
        run("bash", "-c", pack, cwd=tmp_path, VIRTUAL_ENV=str(environment), PATH=paths)
        typed = submit.replace("spark://host:7077", master).replace("your-job.py", f"reads.py {LOGS} where")
        reported = run("bash", "-c", typed, cwd=tmp_path, PATH=paths, SPARK_LOCAL_IP="127.0.0.1")
    finally:
        run(REPOSITORY / "scripts" / "servers" / "spark-cluster", "stop", cwd=tmp_path, **cluster)
    assert_reads(reported)
    (place,) = re.findall("imported from (.*)", reported)
    assert "/environment/lib/" in place
    assert not Path(place).is_relative_to(environment)
