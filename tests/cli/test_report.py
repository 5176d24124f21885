"""``snaprebuild report`` as a user runs it: the page has the contents of the documents."""

import errno
import json
import re
import shlex
import socket
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, copy_of, snapshot_name
from manifests import FIXTURES, REPOSITORY
from pages import HOSTILE, data_of, parsed, partition_of, scan_document, scanned, written
from refused_reads import refused
from sentences import REPLACES_ONLY_ITS_OWN

from snaprebuild.findings import ReportedFinding
from snaprebuild.report.page_data import PageData
from snaprebuild.report.page_links import LINKS_MAX, link_paths

AS_OF = ("--as-of", "2026-11-21T12:00:00Z")


def document(path: Path, verb: str, *arguments: object) -> Path:
    path.write_text(snaprebuild(*verb.split(), *arguments, "--output", "json").stdout)
    return path


def page_of(tmp_path: Path, *documents: Path) -> Path:
    page = tmp_path / "page.html"
    run = in_json("report", *documents, "--html", page)
    assert run.exit_code == 0
    return page


def test_a_scan(tmp_path: Path) -> None:
    scan = document(tmp_path / "scan.json", "scan", FIXTURES / "kafka27-mixed")
    said = json.loads(scan.read_text())
    page = page_of(tmp_path, scan)
    data = data_of(page)
    names = [each["topic_partition"] for each in data["partitions"]]
    assert names[:2] == ["mixed-0", "logappend-0"], "the worst first"
    assert sorted(names[2:]) == ["deleted-0", "plain-0"]
    mixed = data["partitions"][0]
    files = sorted((FIXTURES / "kafka27-mixed/logs/mixed-0").glob("*.log"))
    assert mixed["segments"]["base_offset"] == [int(file.stem) for file in files]
    assert mixed["segments"]["size_bytes"] == [file.stat().st_size for file in files]
    assert mixed["segments"]["fates"] == "b" * 12 + "wwa", "12 blocked, two above the last stable offset, the active one"
    missing = [row["offset"] for row in mixed["boundaries"] if row["state"] == "missing"]
    assert missing == [each["offset"] for each in said["partitions"][0]["boundaries"] if each["state"] == "missing"]
    assert len(missing) == 12
    assert (mixed["log_start_offset"], mixed["log_end_offset"], mixed["last_stable_offset"]) == (0, 8231, 6913)
    # Two transactions are open in it, as tests of `inspect transactions` have it; a scan knows the oldest one alone.
    assert mixed["open"] == [{"first_offset": 6913}]
    assert [data["findings"][number]["code"] for number in mixed["findings"]] == ["missing-snapshots", "above-last-stable-offset"]
    assert any("which producers" in each for each in data["documents"][0]["lacks"])


def test_a_partition_is_listed_once_with_what_all_documents_report(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(EMPTY_SNAPSHOT)
    documents = [
        document(tmp_path / "scan.json", "scan", logs),
        document(tmp_path / "verify.json", "verify", logs, *AS_OF),
        document(tmp_path / "transactions.json", "inspect transactions", logs, *AS_OF),
    ]
    verified = json.loads(documents[1].read_text())
    (judged,) = [each for each in verified["partitions"] if each["topic_partition"] == "mixed-0"]
    data = data_of(page_of(tmp_path, *documents))
    assert len(data["partitions"]) == 4
    mixed = data["partitions"][0]
    assert (mixed["topic_partition"], mixed["documents"]) == ("mixed-0", [0, 1, 2])
    (end,) = [row for row in mixed["boundaries"] if row["offset"] == 8231]
    assert end["entries"] == 0
    assert (end["status"], end["proven_wrong"], end["expected_entries"]) == ("false_empty", True, 35)
    forgotten = {row["producer_id"]: row for row in mixed["differences"]}
    assert forgotten.keys() == {each["producer_id"] for each in judged["snapshots"][-1]["comparison"]["differences"]}
    assert len(forgotten) == 32, "of the 35 that Kafka's classes have there three have expired"
    assert mixed["last_stable_offset"] == 6913, "by replay: the scan takes it from the wrong snapshot"
    assert {row["first_offset"]: row["producer_id"] for row in mixed["open"]} == {6913: 33, 8226: 34}
    assert [(row["is_late"], row["hang_reason"]) for row in mixed["open"]] == [(True, "unknown")] * 2, "why they are late"
    assert {producer: row["open_from"] for producer, row in forgotten.items() if "open_from" in row} == {33: 6913, 34: 8226}


def test_a_receipt(tmp_path: Path) -> None:
    logs, receipt = copy_of("kafka27-mixed", tmp_path), tmp_path / "receipt.jsonl"
    assert snaprebuild("rebuild", logs, "--receipt", receipt, *AS_OF).exit_code == 0
    mixed = partition_of(page_of(tmp_path, receipt), "mixed-0")
    assert [(row["offset"], row["action"], row["class"]) for row in mixed["boundaries"]] == [
        (int(path.name[:20]), "written", "EXACT")
        for path in sorted((logs / "mixed-0").glob("*.snapshot"))
        if not (FIXTURES / "kafka27-mixed/logs/mixed-0" / path.name).exists()
    ]
    assert len(mixed["segments"]["base_offset"]) == 15


def test_an_audit(tmp_path: Path) -> None:
    audit = document(tmp_path / "audit.json", "tier audit", FIXTURES / "aiven-layout/diseased", *AS_OF)
    said = json.loads(audit.read_text())
    wrong = {"false-empty", "zero-bytes", "corrupt", "missing-producers", "wrong"}
    data = data_of(page_of(tmp_path, audit))
    found = [row for partition in data["partitions"] for row in partition["boundaries"] if row.get("proven_wrong")]
    assert len(found) == sum(count for verdict, count in said["totals"].items() if verdict in wrong) > 0
    assert sum(len(partition["segments"]["base_offset"]) for partition in data["partitions"]) == sum(
        len(each["copies"]) for each in said["partitions"]
    )


def test_names_get_nowhere(tmp_path: Path) -> None:
    partitions = [scanned(name, number) for number, name in enumerate(HOSTILE)]
    findings = [
        {"code": f"code-{number}", "severity": "finding", "path": f"/kafka/{name}-{number}", "message": name, "offset": None}
        for number, name in enumerate(HOSTILE)
    ]
    scan = written(scan_document(partitions, findings), tmp_path / "scan.json")
    page = tmp_path / "page.html"
    assert snaprebuild("report", scan, "--html", page, "--title", HOSTILE[0]).exit_code == 0
    data = data_of(page)  # there are two scripts, and the policy allows the second as it is
    assert {each["topic_partition"] for each in data["partitions"]} == {f"{name}-{number}" for number, name in enumerate(HOSTILE)}
    assert parsed(page).title == data["title"] == HOSTILE[0]
    raw = page.read_bytes()
    assert b"<script>alert" not in raw
    assert b"<img" not in raw
    raw.decode("utf-8")


def test_large_offsets_stay_as_they_are(tmp_path: Path) -> None:
    most = 2**63 - 1
    partition = scanned("far", log_end={"offset": most, "source": "x", "at_least": most}, high_watermark=2**53)
    far = partition_of(page_of(tmp_path, written(scan_document([partition]), tmp_path / "scan.json")), "far-0")
    assert (far["log_end_offset"], far["high_watermark"], far["log_start_offset"]) == (str(most), str(2**53), 0), (
        "as text, where a double is not enough"
    )


def test_links_from_findings_to_partitions_have_a_limit() -> None:
    """Many partitions and findings of one place would be linked each with each."""
    page = PageData("title")
    for number in range(1000):
        page.partition(f"t-{number}", "/one/place", 0)
        finding = ReportedFinding(
            code="code", severity="note", path="/one/place/file", message=str(number), offset=None, reason=None
        )
        page.add_finding(finding)
    link_paths(page)
    links = [len(each.findings) for each in page.partitions()]
    assert (sum(links), max(links)) == (LINKS_MAX, 200)


def test_partitions_and_segments_have_limits(tmp_path: Path) -> None:
    page = page_of(tmp_path, written(scan_document([scanned("long", segments=4321, missing=7)]), tmp_path / "scan.json"))
    long = partition_of(page, "long-0")
    assert len(long["segments"]["base_offset"]) <= 1100
    assert sum(long["segments"]["counts"]) == 4321
    assert sum(long["segments"]["size_bytes"]) == 4321 << 20
    assert long["segments"]["fates"].count("b") == 2, "7 blocked, 5 at a time"
    assert len(long["boundaries"]) == 2000
    assert [row["offset"] for row in long["boundaries"] if row["state"] == "missing"] == [100 * number for number in range(1, 8)]
    assert any("4321 segments are drawn as" in each for each in long["lacks"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is an empty file, not a JSON result that `report` shows"),
        (
            '{"a": 1, "b": 2}',
            "is JSON of another program, not a JSON result that `report` shows",
        ),
        (
            '{"schema": "snaprebuild.plan/1", "snaprebuild": "0.1.0"}',
            "is the JSON result of `plan`, not a JSON result that `report` shows",
        ),
        (
            '{"schema": "snaprebuild.scan/1", "snaprebuild": "0.1.0"}',
            "expected snaprebuild.scan/4, found snaprebuild.scan/1 of snaprebuild '0.1.0'; make it again with this program",
        ),
        ('{"schema": "snaprebuild.scan/4", "snaprebuild": "0.1.0"}', "is damaged: expected a member totals, found none"),
        (
            '{"schema": "snaprebuild.scan/4", "snaprebuild": "0.1.0", "totals": {}, "log_dirs": [], "partitions": [{}]}',
            "is damaged: partitions[0]: object missing required field",
        ),
        ('{"schema": "snaprebuild.scan/4", "snaprebuild": "0.1.0", "totals": {}, "log_dirs": [3]}', "is damaged: log_dirs"),
        ('{"schema": "snaprebuild.receipt/1", "snaprebuild": "0.1.0"}\n', "is of another version: expected snaprebuild.receipt/3"),
        ('{"schema": "snaprebuild.receipt/3", "snaprebuild": "0.1.0"}\n', "is damaged: line 1"),
    ],
    ids=lambda value: value[:40],
)
def test_what_is_no_document(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    run = snaprebuild("report", path, "--html", tmp_path / "page.html")
    assert (run.exit_code, run.stdout) == (2, "")
    assert said in run.stderr
    assert run.stderr.startswith(f"snaprebuild: {path}: ")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_only_an_own_page_is_replaced(tmp_path: Path) -> None:
    scan = written(scan_document([scanned("orders")]), tmp_path / "scan.json")
    page = tmp_path / "page.html"
    assert snaprebuild("report", scan, "--html", page).exit_code == 0
    assert snaprebuild("report", scan, "--html", page).exit_code == 0
    page.write_text("<html>mine</html>")
    run = snaprebuild("report", scan, "--html", page)
    assert (run.exit_code, page.read_text()) == (3, "<html>mine</html>")
    assert f"{REPLACES_ONLY_ITS_OWN} of this program" in run.stderr
    assert snaprebuild("report", scan, "--html", scan).exit_code == 2
    logs = copy_of("magic0", tmp_path)
    assert snaprebuild("report", scan, "--html", logs / "page.html").exit_code == 3, "never among a broker's files"


def test_the_page_asks_no_one_for_anything() -> None:
    """Nothing of what the page is made of names another place."""
    assets = REPOSITORY / "snaprebuild/report/assets"
    text = "".join(path.read_text() for path in sorted(assets.iterdir()))
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") + text.count("http-equiv"), (
        "the name of SVG is no address"
    )
    loads = "fetch( XMLHttpRequest import( innerHTML outerHTML insertAdjacentHTML document.write eval( url(h"
    for word in loads.split():
        assert word not in text
    assert len(text) < 80_000, "small enough to be read"


def test_only_what_is_open_at_the_log_end_counts(tmp_path: Path) -> None:
    """A snapshot in the middle shows what was open there: most of that was closed later."""
    scan = document(tmp_path / "scan.json", "scan", FIXTURES / "kafka27-killed")
    run = in_json("report", scan, "--html", tmp_path / "page.html")
    assert run.document["totals"]["open_transactions"] is None, "the log ends of a killed broker are in no snapshot"
    assert not any(each.get("open") for each in data_of(tmp_path / "page.html")["partitions"])
    open_ones = document(tmp_path / "transactions.json", "inspect transactions", FIXTURES / "kafka27-killed", *AS_OF)
    verify = document(tmp_path / "verify.json", "verify", FIXTURES / "kafka27-killed", *AS_OF)
    counted = json.loads(open_ones.read_text())["totals"]["open"]
    assert counted > 0
    for order in ((scan, verify, open_ones), (open_ones, verify, scan)):
        run = in_json("report", *order, "--html", tmp_path / "page.html")
        assert run.document["totals"]["open_transactions"] == counted


def test_each_input_is_named_with_its_run(tmp_path: Path) -> None:
    scan = document(tmp_path / "scan.json", "scan", FIXTURES / "kafka4-mixed")
    run = in_json("report", scan, "--html", tmp_path / "page.html")
    (said,) = run.document["documents"]
    run_of_scan = json.loads(scan.read_text())["run"]
    assert {name: run_of_scan[name] for name in said["run"]} == said["run"]
    assert said["run"]["host"] == socket.gethostname()
    assert said["run"]["command"] == f"snaprebuild scan {shlex.quote(str(FIXTURES / 'kafka4-mixed'))} --output json"
    (shown,) = data_of(tmp_path / "page.html")["documents"]
    assert shown["run"] == said["run"]
    clusters = re.findall(r"^cluster\.id=(\S+)$", (FIXTURES / "kafka4-mixed/logs/meta.properties").read_text(), re.MULTILINE)
    assert len(clusters) == 1
    assert shown["run"]["cluster_ids"] == clusters


def test_what_a_run_did_not_read_is_on_the_page(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    with refused(logs / "mixed-0" / "leader-epoch-checkpoint", errno.EACCES, []):
        scan = document(tmp_path / "scan.json", "scan", logs)
    run = snaprebuild("report", scan, "--html", tmp_path / "page.html")
    assert run.text.startswith("INCOMPLETE: the documents do not cover what could not be read: ")
    assert f"Page: {tmp_path / 'page.html'}, " in run.text.partition(" Documents ")[0]
    assert data_of(tmp_path / "page.html")["documents"][0]["unread_paths"] == [str(logs / "mixed-0")]
    assert in_json("report", scan, "--html", tmp_path / "page.html").document["unread"] == 1
