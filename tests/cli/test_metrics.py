"""``--metrics FILE.prom``: read back by Prometheus' own Python client, and compared with the document of the same run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import in_json, snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES
from prometheus_client.parser import text_string_to_metric_families
from sentences import REPLACES_ONLY_ITS_OWN

from snaprebuild.cli import output
from snaprebuild.cli.render.metrics import METRICS, write_metrics
from snaprebuild.documents import scan as doc
from snaprebuild.findings import Finding, Severity, exit_code_of
from snaprebuild.published import RunRecord
from snaprebuild.snapshots.scan import scan_parts
from snaprebuild.snapshots.scan.scan_result import ScanTotals

AS_OF = ("--as-of", "1795266500000")
COPIES = FIXTURES / "damaged" / "zero-bytes-copy"


def read(path: Path) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by metric and by the values of its labels, in the order of ``METRICS``; without the label of the file."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        labels, _ = METRICS[family.name]
        series = found[family.name] = {}
        for sample in family.samples:
            assert sample.labels.pop("file") == path.name
            assert set(sample.labels) == set(labels)
            series[tuple(sample.labels[each] for each in labels)] = sample.value
        assert len(series) == len(family.samples)
    return found


def test_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, now = tmp_path / "scan.prom", 1_795_266_500.25
    monkeypatch.setattr(output, "time", SimpleNamespace(time=lambda: now))
    run = in_json("scan", FIXTURES / "kafka27-mixed", "--metrics", file)
    found, log_dir = read(file), str(FIXTURES / "kafka27-mixed" / "logs")
    assert run.exit_code == 1
    assert found["snaprebuild_last_run_exit_code"] == {("scan",): 1}
    assert found["snaprebuild_last_run_timestamp_seconds"] == {("scan",): now}
    assert found["snaprebuild_last_success_timestamp_seconds"] == {("scan",): now}
    assert found["snaprebuild_findings"][("scan", "finding")] == 2
    assert found["snaprebuild_scan_snapshots"][(log_dir, "missing")] == 14
    assert found["snaprebuild_scan_blocked_segments"] == {(log_dir,): 14}
    assert found["snaprebuild_scan_stuck_bytes"] == {(log_dir,): run.document["totals"]["stuck_bytes"]}
    topics = {(each["topic"], each["remote_storage"]): each["totals"]["stuck_bytes"] for each in run.document["topics"]}
    assert found["snaprebuild_scan_topic_stuck_bytes"] == topics
    assert topics["mixed", "unknown"] == 914740
    assert {name for name in METRICS if name.startswith("snaprebuild_scan_")} <= set(found)
    assert [each.name for each in tmp_path.iterdir()] == ["scan.prom"]
    assert os.stat(file).st_mode & 0o777 == 0o644, "the collector is another user"


def test_whether_remote_storage_is_on(tmp_path: Path) -> None:
    logs = copy_of("tiered-local", tmp_path)
    properties = tmp_path / "server.properties"
    states = {}
    for enabled in ("true", "false"):
        properties.write_text(
            f"log.dirs={copy_of('kafka4-mixed', tmp_path / enabled)}\nremote.log.storage.system.enable={enabled}\n"
        )
        run = in_json("scan", "--server-properties", properties)
        states[enabled] = {each["remote_storage"] for each in run.document["topics"]}
    assert states == {"true": {"unknown"}, "false": {"off"}}
    states = {each["topic"]: each["remote_storage"] for each in in_json("scan", logs).document["topics"]}
    assert states == {"mixed": "on", "__remote_log_metadata": "off"}


def test_the_other_commands(tmp_path: Path) -> None:
    file, logs = tmp_path / "all.prom", FIXTURES / "damaged" / "false-empty"
    run = in_json("verify", logs, *AS_OF, "--metrics", file)
    found = read(file)
    names = set(found)
    assert found["snaprebuild_verify_wrong_snapshots"] == {(str(logs),): 1}
    assert found["snaprebuild_verify_topic_wrong_snapshots"] == {("payments",): 1}
    statuses = {status: count for (_, status), count in found["snaprebuild_verify_snapshots"].items() if count}
    assert statuses == run.totals
    file.unlink()

    run = in_json("inspect transactions", FIXTURES / "kafka27-mixed", "--metrics", file)
    found = read(file)
    names |= found.keys()
    assert {state: count for (_, state), count in found["snaprebuild_transactions"].items()} == {"open": 4, "late": 4}
    assert found["snaprebuild_transactions_topic_late"] == {("deleted",): 1, ("logappend",): 1, ("mixed",): 2, ("plain",): 0}
    held = sum(each["held_segment_bytes"] for each in run.document["partitions"])
    assert sum(found["snaprebuild_transactions_held_bytes"].values()) == held > 0

    run = in_json("tier audit", COPIES, *AS_OF, "--ledger", tmp_path / "audit.ledger", "--metrics", tmp_path / "audit.prom")
    found = read(tmp_path / "audit.prom")
    names |= found.keys()
    assert found["snaprebuild_tier_audit_snapshots"][(str(COPIES), "zero-bytes")] == 1
    assert found["snaprebuild_tier_audit_topic_wrong_snapshots"] == {(str(COPIES), "payments"): 1}
    assert sum(found["snaprebuild_tier_audit_snapshots"].values()) == sum(run.document["totals"].values())

    store = FIXTURES / "damaged" / "lost-object"
    run = in_json(
        "tier inventory", store / "remote", "--metadata-log", store / "metadata", "--metrics", tmp_path / "inventory.prom"
    )
    found = read(tmp_path / "inventory.prom")
    names |= found.keys()
    root = str(store / "remote")
    assert found["snaprebuild_tier_inventory_copies"][(root, "lost")] == 1
    assert found["snaprebuild_tier_inventory_topic_lost_copies"] == {(root, "payments"): 1}
    assert found["snaprebuild_last_run_exit_code"] == {("tier inventory",): run.exit_code}
    assert names == {name for name in METRICS if not name.startswith("snaprebuild_scan_")}


def test_commands_whose_findings_say_all(tmp_path: Path) -> None:
    """Operators want to be alerted to a follower that lost producers, and a metadata log that breaks a rule."""
    lost, node = FIXTURES / "follower-lost-state", FIXTURES / "kraft-cluster3" / "node2"
    for words in (("follower check", lost / "remote", lost / "node2", *AS_OF), ("cluster check", node), ("cluster isr", node)):
        file = tmp_path / "watched.prom"
        run = in_json(*words, "--metrics", file)
        found = read(file)
        assert found["snaprebuild_last_run_exit_code"] == {(words[0],): run.exit_code}
        severities = [each["severity"] for each in run.document["findings"]]
        assert found["snaprebuild_findings"][words[0], "finding"] == severities.count("finding")
        file.unlink()
    assert in_json("follower check", lost / "remote", lost / "node2", *AS_OF, "--metrics", tmp_path / "lost.prom").exit_code == 1
    assert read(tmp_path / "lost.prom")["snaprebuild_findings"]["follower check", "finding"] > 0


def scan_of(topics: dict[str, tuple[str, int]]) -> doc.Scan:
    """A document with stuck bytes and the state of remote storage of each topic."""
    return doc.Scan(
        request=scan_parts.ScanRequest(paths=(), server_properties=None, topics=(), partitions=()),
        run=RunRecord(at_ms=0, host="", command="", cluster_ids=()),
        totals=ScanTotals(),
        log_dirs=[],
        topics=[
            scan_parts.ScannedTopic(topic=name, remote_storage=state, totals=ScanTotals(stuck_bytes=stuck, missing=1))
            for name, (state, stuck) in topics.items()
        ],
        partitions=[],
        upload_attempts=scan_parts.UploadAttempts(interval="", ways_to_stop=(), not_looked_at=()),
    )


def test_the_worst_topics_have_series_of_their_own(tmp_path: Path) -> None:
    file, states = tmp_path / "scan.prom", ("on", "off", "unknown")
    write_metrics(str(file), scan_of({f"topic-{number}": (states[number % 3], number) for number in range(1000)}), [], 1.0, 0)
    found = read(file)
    stuck = found["snaprebuild_scan_topic_stuck_bytes"]
    assert {topic for topic, _ in stuck} == {f"topic-{number}" for number in range(980, 1000)} | {"(other)"}
    assert len(stuck) == 20 + 3
    for state in states:
        assert stuck["(other)", state] == sum(number for number in range(980) if states[number % 3] == state)
    assert sum(found["snaprebuild_scan_topic_missing_snapshots"].values()) == 1000
    assert file.stat().st_size < 20_000


def test_any_name_is_a_label(tmp_path: Path) -> None:
    names = ['quote"', "back\\slash", "two\nlines", "\u00e4 \u2713", "{}, 1"]
    file = tmp_path / 'odd "name".prom'
    write_metrics(str(file), scan_of(dict.fromkeys(names, ("on", 1))), [], 1.0, 0)
    assert {topic for topic, _ in read(file)["snaprebuild_scan_topic_stuck_bytes"]} == set(names)
    write_metrics(str(file), scan_of({os.fsdecode(b"no text \xff"): ("on", 1)}), [], 1.0, 0)
    assert set(read(file)["snaprebuild_scan_topic_stuck_bytes"]) == {("no text \\udcff", "on")}


def test_only_a_complete_run_counts_as_success(tmp_path: Path) -> None:
    file, document = tmp_path / "scan.prom", scan_of({})

    def written(now: float, *findings: Finding) -> tuple[float, ...]:
        write_metrics(str(file), document, findings, now, exit_code_of(findings))
        names = ("last_run_timestamp_seconds", "last_success_timestamp_seconds", "last_run_exit_code", "unread_paths")
        return tuple(read(file)[f"snaprebuild_{name}"]["scan",] for name in names)

    unread = Finding("busy-log", Severity.NOTE, "/kafka/a-0", "", is_unread=True)
    damaged, failed = (Finding("x", severity, "/kafka", "") for severity in (Severity.DAMAGED, Severity.STORAGE))
    assert written(1000.25, failed) == (1000.25, 0, 5, 0)
    assert written(2000.5, Finding("x", Severity.FINDING, "/kafka", "")) == (2000.5, 2000.5, 1, 0)
    assert written(3000, unread) == (3000, 2000.5, 1, 1)
    assert written(4000, damaged) == (4000, 2000.5, 4, 0)
    assert read(file)["snaprebuild_findings"]["scan", "damaged"] == 1
    assert written(5000) == (5000, 5000, 0, 0)


def test_a_run_that_could_not_write_its_document_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snaprebuild.cli.begin_verb.check_document", lambda *_, **__: None)  # it could be written, before the work
    file = tmp_path / "scan.prom"
    run = snaprebuild("scan", FIXTURES / "magic0", "--metrics", file, "--save-json", "/proc/scan.json")
    assert run.exit_code == 5
    assert read(file)["snaprebuild_last_run_exit_code"] == {("scan",): 5}
    assert read(file)["snaprebuild_last_success_timestamp_seconds"] == {("scan",): 0}


def test_a_run_without_a_result_leaves_the_file(tmp_path: Path) -> None:
    file = tmp_path / "scan.prom"
    write_metrics(str(file), scan_of({}), [], 1.0, 0)
    before = file.read_bytes()
    assert snaprebuild("scan", tmp_path / "absent", "--metrics", file).exit_code == 2
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "exit_code", "message"),
    [
        ("scan.txt", 2, "--metrics: expected a name that ends in .prom, found {tmp}/scan.txt"),
        ("absent/scan.prom", 2, "--metrics: the directory of {tmp}/absent/scan.prom does not exist"),
        ("logs/scan.prom", 3, "is in a directory of a broker ({tmp}/logs), where only the broker may write files"),
        ("logs/plain-0/scan.prom", 3, "is in a directory of a broker ({tmp}/logs), where only the broker may write files"),
        ("foreign.prom", 3, f"{REPLACES_ONLY_ITS_OWN} of this program"),
    ],
)
def test_places(name: str, exit_code: int, message: str, tmp_path: Path) -> None:
    copy_of("kafka4-mixed", tmp_path).rename(tmp_path / "logs")
    (tmp_path / "foreign.prom").write_text("up 1\n")
    run = snaprebuild("scan", tmp_path / "logs", "--metrics", tmp_path / name)
    assert (run.exit_code, run.stdout) == (exit_code, "")
    assert message.format(tmp=tmp_path) in run.error
    assert (tmp_path / "foreign.prom").read_text() == "up 1\n"
    assert not list(tmp_path.rglob("scan.*"))


def test_a_receipt_has_no_metrics(tmp_path: Path) -> None:
    run = snaprebuild("verify", "--written-by", tmp_path / "receipt.jsonl", "--metrics", tmp_path / "verify.prom")
    assert (run.exit_code, "replays nothing: `--metrics " in run.error) == (2, True)
