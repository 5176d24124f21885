"""Settings: an option, before or after the verb, comes before the environment, and that before the configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import in_json, snaprebuild
from manifests import FIXTURES

LOGS = FIXTURES / "kafka27-mixed"


def settings_of(*arguments: object) -> dict[str, tuple[str, str]]:
    """Value and origin of each setting that `-v` lists."""
    run = snaprebuild(*arguments, LOGS, "-v")
    assert run.exit_code == 1, run.stderr
    lines = [line.removeprefix("setting: ") for line in run.stderr.splitlines() if line.startswith("setting: ")]
    found = {}
    for line in lines:
        name, _, rest = line.partition(" = ")
        value, _, origin = rest.removesuffix(")").partition(" (from ")
        found[name] = (value, origin)
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('max_read_rate = "64MiB"\ns3-path-style = true\nmax-requests = 7\nimpact = "low"\nmaster = "local[2]"\n')
    return path


def test_a_file_of_settings(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {
        "--max-read-rate": ("67108864", str(config)),
        "--s3-path-style": ("True", str(config)),
        "--max-requests": ("7", str(config)),
        "--impact": ("low", str(config)),
        "--master": ("local[2]", str(config)),
    }
    assert settings_of("scan", "--config", config) == expected
    assert settings_of("--config", config, "scan") == expected, "before the verb"
    monkeypatch.setenv("SNAPREBUILD_CONFIG", str(config))
    assert settings_of("scan") == expected
    monkeypatch.setenv("SNAPREBUILD_MAX_REQUESTS", "8")
    assert settings_of("scan")["--max-requests"] == ("8", "$SNAPREBUILD_MAX_REQUESTS")
    assert "--max-requests" not in settings_of("--max-requests", "9", "scan")
    assert "--max-requests" not in settings_of("scan", "--max-requests=9")


def test_settings_of_spark_do_not_concern_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'spark_conf = ["spark.executor.memory=2g"]\ncache = "{tmp_path}/cache"\n')
    run = snaprebuild("verify", FIXTURES / "magic0", "--config", path)
    assert (run.exit_code, run.stderr) == (0, "")
    assert in_json("verify", FIXTURES / "magic0", "--config", path).document["cache"] is None
    run = snaprebuild("verify", FIXTURES / "magic0", "--config", path, "--spark-conf", "spark.executor.memory=2g")
    assert (run.exit_code, "--spark-conf goes with --engine spark" in run.stderr) == (2, True)


def test_the_current_directory_sets_nothing(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    assert settings_of("scan") == {}


def test_global_options_before_the_verb() -> None:
    run = snaprebuild("--max-requests", "many", "tier", "inventory", "s3://bucket")
    assert (run.exit_code, "--max-requests" in run.stderr) == (2, True)
    run = snaprebuild("tier", "--s3-anonymous", "--s3-requester-pays", "inventory", "s3://bucket")
    assert (run.exit_code, "--s3-anonymous: nobody is there to pay" in run.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("allow_unproven = true", "sets 'allow_unproven', which only the command line may"),
        ("expiration_ms = 5", "sets 'expiration_ms', which only the command line may"),
        ("crc = 'skip'", "sets 'crc', which only the command line may"),
        ("set_aside = true", "which only the command line may"),
        ("max_requests = true", "max_requests: expected a text or a number, found True"),
        ("s3_path_style = 1", "s3_path_style: expected true or false, found 1"),
        ("max_requests = -1", "--max-requests"),
        ("[s3]", "sets 's3'"),
        ("a b", "is no TOML: "),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    run = snaprebuild("rebuild", LOGS, "--dry-run", "--config", path)
    assert (run.exit_code, run.stdout) == (2, "")
    assert said in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    run = snaprebuild("scan", LOGS, "--config", tmp_path / "none.toml")
    assert (run.exit_code, "none.toml: does not exist" in run.stderr) == (2, True)
