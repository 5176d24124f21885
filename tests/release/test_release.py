"""A release as scripts/release/make_release.py makes it: its sums, signature and lists, two builds, and the way over an air gap."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from license_expression import get_spdx_licensing
from make_release import sign
from manifests import FIXTURES, REPOSITORY
from one_file_runs import FIXTURE, assert_as_kafka_says, run, unpacked
from package_locks import BUNDLED, LOCKS, pins
from releases import EPOCH

pytestmark = pytest.mark.release

CHECKS_A_BILL = """
import sys
import rfc3987_syntax  # without it IRIs are not checked
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


# --- what goes with it ----------------------------------------------------------------------------------------------------------


def test_the_sums(release: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=release, check=True)
    named = {line.split("  ")[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert named | {"SHA256SUMS"} == {path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file()}


def test_a_signature_is_of_these_sums_and_of_no_others(release: Path, tmp_path: Path) -> None:
    """The commands of the page, with a key that is thrown away."""
    page = (REPOSITORY / "docs" / "guides" / "install.md").read_text()
    verify = next(line for line in re.findall(r"^\$ (.*)$", page, re.MULTILINE) if line.startswith("ssh-keygen -Y verify"))
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tmp_path / "allowed_signers").write_text(f"releases@snaprebuild {key.with_suffix('.pub').read_text()}")
    sums = tmp_path / "SHA256SUMS"
    shutil.copy(release / sums.name, sums)
    sign(sums, key)

    def verified() -> tuple[int, str]:
        done = subprocess.run(["sh", "-c", verify], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = verified()
    assert (code, said.startswith('Good "file" signature for releases@snaprebuild')) == (0, True), said
    whole = sums.read_bytes()
    for place in (0, len(whole) // 2, len(whole) - 2):
        sums.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert verified()[0] != 0, place
    sums.write_bytes(whole)
    (tmp_path / "allowed_signers").write_text("")
    assert verified()[0] != 0, "the key is nobody's"


def test_the_provenance_names_each_file_and_the_commit(release: Path) -> None:
    (path,) = release.glob("*.provenance.json")
    statement = json.loads(path.read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    named = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    sums = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    assert named == {name: digest for name, digest in sums.items() if name != path.name}
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if head.returncode:
        pytest.skip("not a git checkout")
    source, *others = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": head.stdout.strip()}
    locks = {each["name"]: each["digest"]["sha256"] for each in others if "name" in each}
    assert locks == {f"scripts/release/locked/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in LOCKS}
    (bill,) = release.glob("*.cdx.json")
    of_the_system = {each["purl"] for each in json.loads(bill.read_text())["components"] if "pkg:pypi/" not in each["purl"]}
    assert {each["uri"] for each in others if "uri" in each} == of_the_system


def test_the_bill_names_what_is_inside(release: Path, one_file: Path, cache: Path) -> None:
    text = Path(f"{one_file}.cdx.json").read_text()
    checked = subprocess.run([sys.executable, "-c", CHECKS_A_BILL], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "None\n"), checked.stderr
    bill = json.loads(text)
    digest = hashlib.sha256(one_file.read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    listed = {component["name"].lower(): component for component in bill["components"]}
    assert run(one_file, cache, "--version").exit_code == 0
    tree = unpacked(cache)
    distributions = {re.match(r"(.+?)-\d", path.name)[1] for path in tree.rglob("*.dist-info")}  # type: ignore[index]
    assert {"snaprebuild", "boto3", "numpy"} <= distributions
    assert not {name for name in distributions if name.lower().replace("_", "-") not in listed}
    locked = {name: version for name, version in pins(BUNDLED).items() if name in listed}
    assert len(locked) == len(pins(BUNDLED)), "nothing of the lock is missing"
    assert {name: listed[name]["version"] for name in locked} == locked
    assert not distributions & {"pyspark", "py4j", "pandas", "pyarrow", "pip"}
    hashes = {inner["name"]: inner["hashes"][0]["content"] for each in listed.values() for inner in each.get("components", ())}
    natives = {
        path.relative_to(tree).as_posix(): path
        for path in tree.rglob("*")
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    }
    reported = {name for name in natives if "/lib-dynload/" not in name}
    assert len(reported) > 25
    assert hashes == {name: hashlib.sha256(natives[name].read_bytes()).hexdigest() for name in reported}
    notices = (release / "THIRD-PARTY-NOTICES.txt").read_text()
    spdx = get_spdx_licensing()
    terms = set()
    for component in listed.values():
        (license_,) = component["licenses"]
        terms |= set(license_["expression"].split(" AND "))
        assert f"\n{component['name']} {component['version']}\n=" in notices
    (whole,) = bill["metadata"]["component"]["licenses"]
    assert set(whole["expression"].split(" AND ")) == terms
    assert {"Apache-2.0", "PSF-2.0", "LGPL-2.1-or-later", "GPL-3.0-or-later WITH GCC-exception-3.1", "Zlib"} <= terms
    assert spdx.validate(whole["expression"].replace("LicenseRef-public-domain", "CC0-1.0")).errors == []
    for words in ("PYTHON SOFTWARE FOUNDATION LICENSE", "Jean-loup Gailly", "OpenSSL"):
        assert words in notices


# --- two builds, and a machine without a network ----------------------------------------------------------------------------------


def test_wheel_and_sdist_are_the_same_from_another_directory(release: Path, tmp_path: Path) -> None:
    """Their bytes, from files of another age in a directory of another name; scripts/release/reproduce compares all of a release."""
    copy = tmp_path / "another-name"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split("\0"):
        if name and not name.startswith(("fixtures/", "tests/")) and (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, copy / name)
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    python = REPOSITORY / ".venv-release" / "bin" / "python"  # with the locked hatchling
    subprocess.run(
        [python, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", copy],
        check=True,
        env=environment,
        capture_output=True,
    )
    made = {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()}
    assert sorted(Path(name).suffix for name in made) == [".gz", ".whl"]
    assert made == {name: (release / name).read_bytes() for name in made}
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    moved = REPOSITORY / "snaprebuild" / "spark" / "found_by_spark"
    for package in ("formats", "snaprebuild"):
        paths = {path for path in (REPOSITORY / package).rglob("*.py") if path.parent != moved}
        assert {path.relative_to(REPOSITORY).as_posix() for path in paths} <= names
        assert f"{package}/py.typed" in names
    found_by_spark = {"pyspark_kafka_batch_headers.py", "pyspark_kafka_producer_snapshot.py", "pyspark_kafka_records.py"}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"formats", "snaprebuild", *found_by_spark}
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        inside = {name.split("/")[1] for name in opened.getnames()}
    wanted = {"snaprebuild", "formats", "docs", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "PKG-INFO", "pyproject.toml"}
    wanted |= {"scripts"}  # what pyproject.toml names of it
    assert inside - {".gitignore"} == wanted


@pytest.mark.root
@pytest.mark.night  # pip download needs the network before the gap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take the network away")
def test_the_way_over_an_air_gap_as_it_is_written(release: Path, tmp_path: Path) -> None:
    """The commands of docs/guides/install.md; on the machine without network the only device is a loopback that is down."""
    page = (REPOSITORY / "docs" / "guides" / "install.md").read_text().partition("## Without a network")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    before, behind = ("\n".join(re.findall(r"^\$ (.*)", block, re.MULTILINE)) for block in blocks)
    (wheel,) = release.glob("*.whl")
    (tmp_path / "usb").mkdir()
    shutil.copy(wheel, tmp_path / "usb")
    prefix = tmp_path / "opt"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path)}

    def typed(commands: str, *within: str) -> None:
        assert "/opt/snaprebuild" in commands or "pip download" in commands
        script = "set -e\n" + commands.replace("/opt/snaprebuild", str(prefix))
        done = subprocess.run(
            [*within, "bash", "-c", script],
            cwd=tmp_path / "usb",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    typed(before)
    (tmp_path / "usb" / wheel.name).unlink()
    there = f"/opt/snaprebuild/bin/snaprebuild rebuild {FIXTURES / FIXTURE} --out {tmp_path}/out --boundaries all"
    typed(f"! (exec 3<>/dev/tcp/1.1.1.1/53) 2>/dev/null\n{behind}\n{there}", "unshare", "--net")
    assert_as_kafka_says(tmp_path / "out")
