"""Settings: the command line, before or after the verb, has precedence over the environment, and that over the configuration file."""

from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES

from snaprebuild.cli.main import verbs
from snaprebuild.cli.options.settings import SETTINGS

LOGS = FIXTURES / "kafka27-mixed"
COMMANDS = verbs()


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
        "max_read_rate": ("67108864", str(config)),
        "s3_path_style": ("True", str(config)),
        "max_requests": ("7", str(config)),
        "impact": ("low", str(config)),
        "master": ("local[2]", str(config)),
    }
    assert settings_of("scan", "--config", config) == expected
    assert settings_of("--config", config, "scan") == expected, "before the verb"
    monkeypatch.setenv("SNAPREBUILD_CONFIG", str(config))
    assert settings_of("scan") == expected
    monkeypatch.setenv("SNAPREBUILD_MAX_REQUESTS", "8")
    assert settings_of("scan")["max_requests"] == ("8", "$SNAPREBUILD_MAX_REQUESTS")
    for arguments in (("--set", "max_requests=9", "scan"), ("scan", "--set=max-requests=9")):
        assert settings_of(*arguments)["max_requests"] == ("9", "--set")
    monkeypatch.setenv("SNAPREBUILD_IMPACT", "full")
    assert settings_of("scan")["impact"] == ("full", "$SNAPREBUILD_IMPACT")
    assert settings_of("scan", "--set", "impact=normal")["impact"] == ("normal", "--set")
    assert "impact" not in settings_of("--impact", "normal", "scan"), "an option is no setting"


def test_every_global_option_may_precede_the_verb(tmp_path: Path) -> None:
    saved, metrics = tmp_path / "scan.json", tmp_path / "scan.prom"
    assert snaprebuild("--save-json", saved, f"--metrics={metrics}", "-v", "scan", LOGS).exit_code == 1
    assert (saved.stat().st_size > 0, metrics.stat().st_size > 0) == (True, True)


def test_settings_of_spark_do_not_concern_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'spark_conf = ["spark.executor.memory=2g"]\ncache = "{tmp_path}/cache"\n')
    run = snaprebuild("verify", FIXTURES / "magic0", "--config", path)
    assert (run.exit_code, run.stderr) == (0, "")
    assert in_json("verify", FIXTURES / "magic0", "--config", path).document["cache"] is None
    run = snaprebuild("verify", FIXTURES / "magic0", "--config", path, "--set", "spark_conf=spark.executor.memory=2g")
    assert (run.exit_code, run.stderr) == (0, "note: spark_conf has no effect without --engine spark or auto\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("allow_unproven = true", "'allow_unproven' is no setting; expected one of impact, jobs, "),
        ("max_requests = true", "max_requests: expected a number from 1 to 9223372036854775807, found 'True' (from "),
        ("s3_path_style = 1", "s3_path_style: expected one of true, false, found '1' (from "),
        ("s3_profile = 1", "s3_profile: expected a text, found '1' (from "),
        ("impact = 'none'", "impact: expected one of low, normal, full, found 'none' (from "),
        ("spark_conf = [1]", "spark_conf: expected a text, found '1'"),
        ("[s3]", "'s3' is no setting"),
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


def test_the_environment_sets_what_a_file_sets_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPREBUILD_MAX_READ_RATE", "64MB")
    run = snaprebuild("scan", LOGS)
    assert (run.exit_code, "found '64MB'; units: KiB, MiB, GiB, TiB (from $SNAPREBUILD_MAX_READ_RATE)" in run.stderr) == (2, True)
    monkeypatch.setenv("SNAPREBUILD_MAX_READ_RATE", "")
    monkeypatch.setenv("SNAPREBUILD_ALLOW_UNPROVEN", "true")
    monkeypatch.setenv("SNAPREBUILD_SET_ASIDE", "true")
    assert settings_of("scan") == {}


def test_a_command_ignores_settings_that_it_does_not_use(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('key_prefix = "cold-"\nmax_requests = 7\njobs = 2\n')
    assert settings_of("scan", "--config", path, "--set", "jobs_per_disk=2") == {"max_requests": ("7", str(path))}


def test_a_saved_plan_refuses_other_settings_of_the_store(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert snaprebuild("plan", LOGS, "--save", plan, "--out", tmp_path / "out").exit_code == 0
    run = snaprebuild("rebuild", "--plan", plan, "--dry-run", "--set", "s3_profile=other")
    assert (run.exit_code, "--plan carries the selection" in run.stderr) == (2, True)


def test_a_plan_of_staging_ignores_an_engine_that_is_set_for_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    run = snaprebuild("plan", logs, "--to", tmp_path / "staged", "--set", "engine=spark")
    assert (run.exit_code, "not with --engine spark" in run.stderr) == (2, True)
    monkeypatch.setenv("SNAPREBUILD_ENGINE", "spark")
    run = snaprebuild("plan", logs, "--to", tmp_path / "staged")
    assert (run.exit_code, "snapshots" in run.stdout) == (0, True), run.stderr


def test_every_setting_is_used_by_a_command_and_no_option_without_being_one() -> None:
    """A setting is an option too, or the help of a verb lists it."""
    used = {name for each in COMMANDS.values() for name in each.settings}
    options = {option.name for each in COMMANDS.values() for option in each.params}
    assert used == {name for name, each in SETTINGS.items() if each.help}
    assert {name for name, each in SETTINGS.items() if not each.help} == options & set(SETTINGS)


def test_the_current_directory_sets_nothing(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    assert settings_of("scan") == {}
