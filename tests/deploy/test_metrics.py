"""The alert rules and the dashboard, with a real Prometheus and a real node exporter on loopback."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from command import snaprebuild
from free_ports import free_ports
from log_dirs import copy_of
from manifests import FIXTURES, REPOSITORY

from snaprebuild.cli.render.metrics import METRICS

DEPLOY = REPOSITORY / "scripts" / "deploy" / "metrics"
RULES, DASHBOARD = DEPLOY / "alerts.yml", DEPLOY / "dashboard.json"
GUIDE = REPOSITORY / "docs" / "guides" / "monitor.md"
RULE_TESTS = Path(__file__).with_name("alerts.test.yml")
AS_OF = ("--as-of", "1795266500000")
SECONDS_MAX = 180
"""Longest wait of a test: the machine may be busy."""

ALERTS = re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)
PANELS: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
QUERIES = {f"{panel['title']} ({target['refId']})": target["expr"] for panel in PANELS for target in panel["targets"]}


def program(name: str) -> str:
    """On the PATH. With CI=true its absence is a failure, as of every part."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"NOT RUN: Prometheus and its node exporter (marker prometheus): {name} is not on the PATH")
    return found


def promtool(*arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *map(str, arguments)], input=text, capture_output=True, text=True, check=False)


# ------------------------------------------------------------------------------------------------------------ without any program


@pytest.mark.parametrize("path", [RULES, DASHBOARD, RULE_TESTS], ids=lambda path: path.name)
def test_only_metrics_that_exist_are_named(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"\b(snaprebuild_\w+)(?:\{([^}]*)\})?", text)
    assert len(used) > 5
    for name, matchers in used:
        labels = {*METRICS[name][0], "file", "instance"}
        assert set(re.findall(r"(\w+)=~?\\?[\"']", matchers)) <= labels, name


def test_the_timer_of_the_guide_runs(tmp_path: Path) -> None:
    (line,) = re.findall(r"^[0-9]+ [0-9]+ \* \* \* kafka snaprebuild (.*) >/dev/null$", GUIDE.read_text(), re.MULTILINE)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={copy_of('kafka27-mixed', tmp_path)}\n")
    line = line.replace("/etc/kafka/server.properties", str(properties)).replace("/var/lib/prometheus/node-exporter", str(tmp_path))
    assert snaprebuild(*line.split()).exit_code == 1
    assert "snaprebuild_scan_topic_stuck_bytes{" in (tmp_path / "scan.prom").read_text()


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    cases = re.findall(r"alertname: (\w+)\n +exp_alerts:", RULE_TESTS.read_text())
    assert len(ALERTS) == 8
    assert set(cases) == set(ALERTS)


# -------------------------------------------------------------------------------------------------------------------- promtool


@pytest.mark.prometheus
def test_promtool_accepts_metrics_and_rules(tmp_path: Path) -> None:
    file = tmp_path / "scan.prom"
    snaprebuild("scan", FIXTURES / "kafka27-mixed", "--metrics", file)
    for done in (
        promtool("check", "metrics", text=file.read_text()),
        promtool("check", "rules", "--lint=all", "--lint-fatal", RULES),
        promtool("test", "rules", RULE_TESTS),
    ):
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.night
@pytest.mark.prometheus
@pytest.mark.parametrize("alert", ALERTS)
def test_the_tests_of_the_rules_notice_an_alert_that_never_fires(alert: str, tmp_path: Path) -> None:
    broken, count = re.subn(
        rf"(- alert: {alert}\n +expr:) .*?(\n +(?:labels|for):)", r"\1 vector(0) > 1\2", RULES.read_text(), flags=re.DOTALL
    )
    assert count == 1
    (tmp_path / "alerts.yml").write_text(broken)
    tests = tmp_path / "tests.yml"
    tests.write_text(RULE_TESTS.read_text().replace("../../scripts/deploy/metrics/alerts.yml", "alerts.yml"))
    done = promtool("test", "rules", tests)
    assert (done.returncode, alert in done.stderr + done.stdout) == (1, True)


# ------------------------------------------------------------------------------------------------------------------- dashboard


def lost(given: object, kept: object, place: str = "$") -> Iterator[str]:
    """Members that are absent or other in ``kept``."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            yield from lost(value, kept.get(name), f"{place}.{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(value, other, f"{place}[{number}]")
    elif given != kept:
        yield place


@pytest.mark.full
def test_grafana_knows_each_member_of_the_dashboard() -> None:
    """The types of Grafana's own SDK keep what they know: a member with another name or form would be lost."""
    from grafana_foundation_sdk.cog import encoder, plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    def through_the_sdk(document: dict[str, Any]) -> Any:
        return json.loads(encoder.JSONEncoder().encode(Dashboard.from_json(document)))

    plugins.register_default_plugins()
    dashboard = json.loads(DASHBOARD.read_text())
    assert list(lost(dashboard, through_the_sdk(dashboard))) == []
    dashboard["panels"][0]["options"]["colourMode"] = "value"
    assert list(lost(dashboard, through_the_sdk(dashboard))) == ["$.panels[0].options.colourMode"]


def test_panels_do_not_overlap() -> None:
    cells: list[tuple[int, int]] = []
    for place in (panel["gridPos"] for panel in PANELS):
        cells += [(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23, "Grafana's grid has 24 columns"
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


# ---------------------------------------------------------------------------------------------------------------- a real server


@contextlib.contextmanager
def started(log: Path, *command: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output, subprocess.Popen([str(each) for each in command], stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=60)


class Prometheus:
    """A running server.

    Args:
        port: of the server.
        processes: those that were started, by the files with what they print.
    """

    def __init__(self, port: int, processes: dict[Path, subprocess.Popen[bytes]]) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._processes = processes

    def _get(self, path: str, **parameters: str) -> Any:
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(parameters)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        result = self._get("query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def alerts(self) -> set[tuple[str, str, str]]:
        """Name, state, and the topic or command of each alert that is pending or fires."""
        return {
            (each["labels"]["alertname"], each["state"], each["labels"].get("topic") or each["labels"].get("command", ""))
            for each in self._get("alerts")["alerts"]
        }

    def is_ready(self) -> bool:
        """Whether it answers, and has scraped the node exporter. What answers is no other process, which has taken a port."""
        try:
            is_up = bool(self.query("up == 1"))
        except OSError:
            is_up = False
        for log, process in self._processes.items():
            assert process.poll() is None, log.read_text()
        return is_up


def wait_until(holds: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.fixture
def textfiles(tmp_path: Path) -> Path:
    """The directory that the node exporter reads."""
    directory = tmp_path / "textfiles"
    directory.mkdir()
    return directory


@pytest.fixture
def prometheus(tmp_path: Path, textfiles: Path) -> Iterator[Prometheus]:
    """With the rules as they are, and short intervals."""
    exporter, server = free_ports(2)
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}],
    }
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(config))  # which is YAML, too
    collector = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={textfiles}")
    address = "--web.listen-address=127.0.0.1:"
    node_exporter, prometheus_server = program("prometheus-node-exporter"), program("prometheus")
    storage = f"--storage.tsdb.path={tmp_path / 'tsdb'}"
    logs = [tmp_path / "exporter.log", tmp_path / "server.log"]
    with (
        started(logs[0], node_exporter, *collector, f"{address}{exporter}") as first,
        started(logs[1], prometheus_server, f"--config.file={file}", storage, f"{address}{server}") as second,
    ):
        running = Prometheus(server, dict(zip(logs, (first, second), strict=True)))
        wait_until(running.is_ready, logs[1].read_text)
        yield running


def measured(textfiles: Path, *arguments: object) -> int:
    """Runs a command with its metrics; the exit code."""
    name = re.sub(r"\W", "-", str(arguments[0]))
    return snaprebuild(*arguments, "--metrics", textfiles / f"{name}.prom").exit_code


@pytest.mark.night
@pytest.mark.prometheus
def test_alerts_fire_and_are_resolved(tmp_path: Path, textfiles: Path, prometheus: Prometheus) -> None:
    def fires(name: str, about: str, state: str = "firing") -> bool:
        return (name, state, about) in prometheus.alerts()

    def wait_for(name: str, about: str, *, firing: bool = True, state: str = "firing") -> None:
        wait_until(lambda: fires(name, about, state) is firing, lambda: (name, about, firing, prometheus.alerts()))

    # Remote storage is on, and the snapshots are missing, as after an upgrade from 2.7.
    logs = copy_of("tiered-local", tmp_path)
    for snapshot in (logs / "mixed-0").glob("*.snapshot"):
        snapshot.unlink()
    assert measured(textfiles, "scan", logs) == 1
    wait_for("SnaprebuildTopicStuck", "mixed")
    assert not fires("SnaprebuildTopicStuckIfRemoteStorageIsOn", "mixed")
    assert snaprebuild("rebuild", logs, *AS_OF, "--receipt", tmp_path / "receipt.jsonl").exit_code == 0
    assert measured(textfiles, "scan", logs) == 0
    wait_for("SnaprebuildTopicStuck", "mixed", firing=False)

    # Nothing shows whether it is on.
    assert measured(textfiles, "scan", FIXTURES / "kafka27-mixed") == 1
    wait_for("SnaprebuildTopicStuckIfRemoteStorageIsOn", "logappend")
    wait_for("SnaprebuildTopicStuckIfRemoteStorageIsOn", "mixed")
    assert not fires("SnaprebuildTopicStuck", "mixed")

    # A flipped bit; no run was complete before. Then the disk is replaced.
    assert measured(textfiles, "verify", FIXTURES / "damaged" / "flipped-bit", *AS_OF) == 4
    wait_for("SnaprebuildDamagedBytes", "verify")
    wait_for("SnaprebuildRunOld", "verify")
    assert measured(textfiles, "verify", FIXTURES / "damaged" / "healthy" / "log", *AS_OF) == 0
    wait_for("SnaprebuildDamagedBytes", "verify", firing=False)
    wait_for("SnaprebuildRunOld", "verify", firing=False)

    epochs = logs / "mixed-0" / "leader-epoch-checkpoint"
    before = epochs.read_bytes()
    epochs.write_bytes(b"\xff")
    measured(textfiles, "scan", logs)
    wait_for("SnaprebuildUnread", "scan")
    assert not fires("SnaprebuildRunOld", "scan"), "the run before was complete"
    epochs.write_bytes(before)
    assert measured(textfiles, "scan", logs) == 0
    wait_for("SnaprebuildUnread", "scan", firing=False)

    assert measured(textfiles, "verify", FIXTURES / "damaged" / "false-empty", *AS_OF) == 1
    wait_for("SnaprebuildWrongSnapshots", "payments")
    assert measured(textfiles, "inspect transactions", FIXTURES / "kafka27-mixed") == 1
    wait_for("SnaprebuildLateTransactions", "mixed")

    # The file of a machine is gone.
    (textfiles / "verify.prom").unlink()
    wait_for("SnaprebuildMetricsAbsent", "verify", state="pending")


@pytest.mark.night
@pytest.mark.prometheus
def test_each_query_of_the_dashboard_has_a_result(tmp_path: Path, textfiles: Path, prometheus: Prometheus) -> None:
    store = FIXTURES / "damaged" / "zero-bytes-copy"
    measured(textfiles, "scan", FIXTURES / "kafka27-mixed")
    measured(textfiles, "verify", FIXTURES / "damaged" / "false-empty", *AS_OF)
    measured(textfiles, "inspect transactions", FIXTURES / "kafka27-mixed")
    measured(textfiles, "tier audit", store, *AS_OF)
    measured(textfiles, "tier inventory", store)
    wait_until(lambda: len(prometheus.query("group by (command) (snaprebuild_findings)")) == 5, lambda: list(textfiles.iterdir()))
    names = {each["metric"]["__name__"] for each in prometheus.query('{__name__=~"snaprebuild_.+"}')}
    assert names == set(METRICS), "the node exporter passes each on"
    assert prometheus.query("node_textfile_scrape_error")[0]["value"][1] == "0"
    for title, expression in QUERIES.items():
        found = prometheus.query(expression.replace("$instance", ".*"))
        assert found, title
        assert all(float(each["value"][1]) >= 0 for each in found), title
    wanted = "sum by (remote_storage) (snaprebuild_scan_topic_stuck_bytes)"
    assert prometheus.query(wanted)[0]["value"][1] == "1176234"
