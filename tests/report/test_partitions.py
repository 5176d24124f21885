"""The partitions of a page: tones, order, next commands, links from findings, and transactions. The script of the page judges nothing."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from command import snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES, REPOSITORY
from pages import data_of, scan_document, scanned, written

from snaprebuild.broker.status import StatusCounts
from snaprebuild.cli.render.report import partition_next_command
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.findings import ReportedFinding
from snaprebuild.report.from_fleet import ADVICE
from snaprebuild.report.make import TAKERS, make_report
from snaprebuild.report.page_data import PageData, PagePartition, SegmentFate
from snaprebuild.report.page_links import link_paths
from snaprebuild.report.page_next import PartitionStatus, add_next_commands
from snaprebuild.report.page_tones import BoundaryTone, PartitionTone, boundary_tone

AS_OF = ("--as-of", "2026-11-21T12:00:00Z")

SCRIPTS = REPOSITORY / "snaprebuild" / "report" / "assets"


def page_of(place: Path, *documents: Path) -> dict[str, Any]:
    """The data of a page."""
    page = place / "page.html"
    make_report([str(each) for each in documents], str(page), None, partition_next_command)
    return data_of(page)


def finding(severity: str, path: str) -> ReportedFinding:
    return ReportedFinding(code="code", severity=severity, path=path, message="message", offset=None, reason=None)


# ------------------------------------------------------------------------------------------------------ tones


@pytest.mark.parametrize(
    ("state", "status", "at_next_start", "proven_wrong", "tone"),
    [
        ("present", None, None, False, BoundaryTone.FINE),
        ("present", "equal", None, False, BoundaryTone.FINE),
        ("present", "equal_after_expiry", None, False, BoundaryTone.FINE),
        ("present", "unverifiable", None, False, BoundaryTone.UNVERIFIABLE),
        ("present", "false_empty", None, True, BoundaryTone.WRONG),
        ("corrupt", None, None, True, BoundaryTone.WRONG),
        ("suspect", None, None, False, BoundaryTone.SUSPECT),
        ("suspect", "unverifiable", None, False, BoundaryTone.SUSPECT),
        ("suspect", "equal", None, False, BoundaryTone.FINE),
        ("suspect", "stale", None, True, BoundaryTone.WRONG),
        ("missing", None, None, False, BoundaryTone.MISSING),
        ("irregular", None, None, False, BoundaryTone.MISSING),
        ("present", "equal", "removed", False, BoundaryTone.REMOVED),
        ("present", None, "empty", False, BoundaryTone.REMOVED),
        ("unreadable", None, None, False, BoundaryTone.UNVERIFIABLE),
        ("not due", None, None, False, BoundaryTone.QUIET),
        ("regenerated", None, None, False, BoundaryTone.QUIET),
        ("present", "right", None, False, BoundaryTone.FINE),
        ("present", "consistent", None, False, BoundaryTone.FINE),
        ("present", "unproven", None, False, BoundaryTone.UNVERIFIABLE),
        ("present", "not-read", None, False, BoundaryTone.UNVERIFIABLE),
        ("present", "reach-unknown", None, False, BoundaryTone.UNVERIFIABLE),
        ("present", "unreachable", None, False, BoundaryTone.QUIET),
        ("present", "suspect", None, False, BoundaryTone.SUSPECT),
    ],
)
def test_the_state_of_a_boundary_in_one_word(
    state: str, status: str | None, at_next_start: str | None, proven_wrong: bool, tone: BoundaryTone
) -> None:
    assert boundary_tone(state, status, at_next_start, is_written=False, proven_wrong=proven_wrong) is tone


def test_the_script_of_a_page_has_each_tone_and_no_other() -> None:
    """A tone without a text, a colour or a place in the order would be drawn as nothing."""
    model = (SCRIPTS / "model.js").read_text()
    (names,) = re.findall(r"const TONES = \{(.*?)\};", model, re.DOTALL)
    assert re.findall(r"^  (\w+):", names, re.MULTILINE) == [each.value for each in BoundaryTone]
    style = (SCRIPTS / "page.css").read_text()
    assert {each.value for each in PartitionTone} - {"unknown", "fine"} == set(re.findall(r"^\.row\.(\w+)", style, re.MULTILINE))
    (fates,) = re.findall(r"const FATES = \{(.*?)\};", model, re.DOTALL)
    assert set(re.findall(r"^  (\w): ", fates, re.MULTILINE)) == {each.value for each in SegmentFate}
    (rank,) = re.findall(r'FATE_RANK = "(\w+)"', model)
    assert sorted(rank) == sorted(each.value for each in SegmentFate)
    text = "".join(path.read_text() for path in SCRIPTS.glob("*.js"))
    assert set(re.findall(r"(?<!page_)tones\.(\w+)", text)) <= {each.value for each in BoundaryTone}
    assert set(re.findall(r'tone [!=]== "(\w+)"', text)) <= {*BoundaryTone, *PartitionTone}


def test_the_script_of_a_page_knows_no_name_of_a_document() -> None:
    """A name changes with the document, and a script that compares it fails in silence: the data say what each document shows."""
    text = "".join(path.read_text() for path in SCRIPTS.glob("*.js"))
    for verb in TAKERS:
        assert not re.search(rf"snaprebuild\.{verb}|[\"']{verb}[\"'/]", text), verb


@pytest.mark.parametrize("outcome", FleetOutcome)
def test_each_outcome_of_a_fleet_has_an_advice(outcome: FleetOutcome, tmp_path: Path) -> None:
    assert "{" not in ADVICE[outcome].format("broker 1")
    assert ADVICE.keys() == set(FleetOutcome)


def test_a_fleet_says_what_to_do(tmp_path: Path) -> None:
    """The page names the broker that is elected and the one that is repaired, like the document."""
    scans = [
        written(
            scan_document([scanned("orders", missing=missing), scanned("audit", missing=2)], node_id=node),
            tmp_path / f"{node}.json",
        )
        for node, missing in ((1, 3), (2, 0))
    ]
    fleet = tmp_path / "fleet.json"
    fleet.write_text(snaprebuild("fleet", *scans, "--output", "json").stdout)
    outcomes = {each["topic_partition"]: each["outcome"] for each in json.loads(fleet.read_text())["partitions"]}
    assert outcomes == {"orders-0": "elect", "audit-0": "repair"}
    advice = {each["topic_partition"]: dict(each["facts"])["to do"] for each in page_of(tmp_path, fleet)["partitions"]}
    assert advice["orders-0"] == "elect broker 2, which has every snapshot"
    assert re.fullmatch(r"repair broker \d, then let it lead", advice["audit-0"])


# ------------------------------------------------------------------------------------------------------ order


def partition(page: PageData, name: str) -> PagePartition:
    return page.partition(f"{name}-0", f"/kafka/{name}-0", 0)


def test_the_worst_partitions_come_first() -> None:
    """In the order of a first line; a finding comes before none, and one that ends a command with another code than 1 before others."""
    page = PageData("title")
    for name in ("clean", "note", "unverifiable", "open", "concern", "suspect", "missing", "stuck", "damaged", "wrong"):
        partition(page, name)
    partition(page, "unverifiable").boundary(10).status = "unverifiable"
    partition(page, "open").open_by_replay = 3
    partition(page, "suspect").boundary(10).state = "suspect"
    partition(page, "missing").boundary(10).state = "missing"
    partition(page, "stuck").stuck_bytes = 1
    partition(page, "wrong").boundary(10).proven_wrong = True
    for severity, name in (("note", "note"), ("finding", "concern"), ("damaged", "damaged")):
        page.add_finding(finding(severity, f"/kafka/{name}-0"))
    link_paths(page)
    names = [each.topic_partition[:-2] for each in page.partitions()]
    assert names == ["wrong", "damaged", "stuck", "missing", "suspect", "concern", "unverifiable", "open", "note", "clean"]
    tones = {each.topic_partition[:-2]: each.tone.value for each in page.partitions()}
    assert {name for name, tone in tones.items() if tone == "fine"} == {"open", "note", "clean"}
    assert tones["unverifiable"] == "unknown", "neither wrong nor found right"
    assert tones["damaged"] == "wrong"


@pytest.mark.parametrize(
    ("path", "about"),
    [
        ("/kafka/a/t-0", {"/kafka/a/t-0"}),
        ("/kafka/a/t-0/00000000000000000000.log", {"/kafka/a/t-0"}),
        ("/kafka/a/t-0/remote/x/y", {"/kafka/a/t-0"}),
        ("/kafka/a", {"/kafka/a/t-0", "/kafka/a/t-1"}),
        ("/kafka/a/meta.properties", {"/kafka/a/t-0", "/kafka/a/t-1"}),
        ("/kafka", {"/kafka/a/t-0", "/kafka/a/t-1", "/kafka/b/t-2"}),
        ("/kafka/c", set()),
        ("/kafka/server.properties", set()),
        ("/", set()),
        ("s3://bucket/a/t-3/00000000000000000000.log", {"s3://bucket/a/t-3"}),
        ("s3://bucket/a", {"s3://bucket/a/t-3"}),
        ("s3://bucket", {"s3://bucket/a/t-3"}),
        ("s3://other", set()),
    ],
)
def test_which_partitions_a_finding_is_about(path: str, about: set[str]) -> None:
    page = PageData("title")
    for place in ("/kafka/a/t-0", "/kafka/a/t-1", "/kafka/b/t-2", "s3://bucket/a/t-3"):
        page.partition(place.rpartition("/")[2], place, 0)
    page.add_finding(finding("finding", path))
    link_paths(page)
    assert {each.place for each in page.partitions() if each.findings} == about
    assert {each.place for each in page.partitions() if each.tone is not PartitionTone.FINE} == about


# ------------------------------------------------------------------------------------------------------ next commands


def status(**changed: Any) -> PartitionStatus:
    counts = {name: changed.pop(name) for name in StatusCounts.__struct_fields__ if name in changed}
    facts = {"path": "/kafka/t-0", "is_verified": False, "is_local": True, "can_plan": True, "can_replace": True, "expiry": []}
    return PartitionStatus(counts=StatusCounts(**counts), **{**facts, **changed})


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        (status(is_verified=True), None),
        (status(is_verified=True, waiting=3, waiting_unknown=2), None),
        (status(), "snaprebuild verify /kafka/t-0"),
        (status(missing=2), "snaprebuild plan /kafka/t-0"),
        (status(missing=2, is_verified=True), "snaprebuild plan /kafka/t-0"),
        (status(missing=2, is_verified=True, can_plan=False), None),
        (status(suspect=1), "snaprebuild verify /kafka/t-0"),
        (status(suspect=1, missing=2), "snaprebuild verify /kafka/t-0"),
        (status(suspect=1, is_verified=True), None),
        (status(wrong=1), "snaprebuild verify /kafka/t-0"),
        (status(wrong=1, is_verified=True), "snaprebuild plan /kafka/t-0 --set-aside"),
        (status(wrong=1, is_verified=True, can_replace=False), None),
        (status(wrong=1, missing=9, is_verified=True), "snaprebuild plan /kafka/t-0 --set-aside"),
        (status(fates=1, wrong=1, missing=2), None),
        (status(suspect=1, expiry=["--expiration-ms", "5"]), "snaprebuild verify /kafka/t-0 --expiration-ms 5"),
        (status(wrong=1, is_verified=True, expiry=["--as-of", "9"]), "snaprebuild plan /kafka/t-0 --as-of 9 --set-aside"),
        (status(missing=2, path="/a b/t-0; rm -r x"), "snaprebuild plan '/a b/t-0; rm -r x'"),
    ],
)
def test_the_next_command_of_a_partition_follows_from_its_status(facts: PartitionStatus, command: str | None) -> None:
    assert partition_next_command(facts) == command


def test_a_partition_without_a_next_command_says_why() -> None:
    """And none with a finding says that there is nothing to do."""
    page = PageData("title")
    for name in ("fine", "unverifiable", "late", "finding", "unread", "damaged", "remote", "fleet"):
        partition(page, name).is_directory = name not in ("remote", "fleet")
    partition(page, "unverifiable").boundary(10).status = "unverifiable"
    partition(page, "late").late = 1
    partition(page, "unread").is_unread = True
    partition(page, "remote").boundary(10).proven_wrong = True
    partition(page, "fleet").outcome = "wait"
    page.add_finding(finding("finding", "/kafka/finding-0"))
    page.add_finding(finding("finding", "/kafka/late-0"))
    page.add_finding(finding("damaged", "/kafka/damaged-0"))
    link_paths(page)
    add_next_commands(page, lambda _: None)
    texts = {each.topic_partition[:-2]: each.next_text or "" for each in page.partitions()}
    assert {name for name, text in texts.items() if text.startswith("Nothing to do")} == {"fine", "unverifiable"}
    assert len(set(texts.values())) == len(texts)
    assert "commands" in texts["late"]
    assert "findings" in texts["finding"]
    assert "next command of the page" in texts["remote"]
    assert "fetch this partition again" in texts["damaged"]


def test_a_damaged_log_has_no_command_that_builds_over_the_damage(tmp_path: Path) -> None:
    """The page follows `verify`, which shows the damaged place and proposes no plan."""
    logs = copy_of("damaged", tmp_path)
    (logs / "bad-crc-0" / f"{2136:020d}.snapshot").unlink()
    saved = tmp_path / "verify.json"
    saved.write_text(snaprebuild("verify", logs, *AS_OF, "--output", "json").stdout)
    partitions = {each["topic_partition"]: each for each in page_of(tmp_path, saved)["partitions"]}
    assert (partitions["bad-crc-0"]["damaged"], partitions["bad-crc-0"].get("next_command")) == (1, None)
    assert "damaged" not in partitions["torn-tail-0"]


def test_each_next_command_of_a_page_runs(tmp_path: Path) -> None:
    """It is a command of this program, about this directory, and none that refuses it."""
    documents = []
    for name in ("kafka27-mixed", "kafka27-killed"):
        for verb in ("scan", "verify"):
            documents.append(tmp_path / f"{name}-{verb}.json")
            documents[-1].write_text(snaprebuild(verb, FIXTURES / name / "logs", "--output", "json").stdout)
    data = page_of(tmp_path, *documents)
    commands = {each["topic_partition"]: each.get("next_command") for each in data["partitions"]}
    assert {name for name, command in commands.items() if command} == {"mixed-0", "logappend-0", "k-magicup-0"}, "all are verified"
    for each in (*filter(None, commands.values()), data["status"]["next_command"]):
        program, *words = shlex.split(each)
        assert program == "snaprebuild"
        assert snaprebuild(*words, *AS_OF).exit_code in (0, 1), each


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["--as-of=1795261244275"], ["--as-of", "1795261244275"]),
        (["--as-of", "1795261244275", "--expiration-ms", "3600000"], ["--as-of", "1795261244275", "--expiration-ms", "3600000"]),
    ],
)
def test_the_next_command_of_a_partition_judges_at_the_time_of_its_document(
    given: list[str], expected: list[str], tmp_path: Path
) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    for path in logs.glob("mixed-0/*.snapshot"):
        path.write_bytes(b"torn")
    saved = tmp_path / "verify.json"
    saved.write_text(snaprebuild("verify", logs, *given, "--output", "json").stdout)
    commands = [each.get("next_command") for each in page_of(tmp_path, saved)["partitions"]]
    (words,) = [shlex.split(each) for each in commands if each is not None]
    assert words == ["snaprebuild", "plan", str(logs / "mixed-0"), *expected, "--set-aside"]


def test_a_scan_has_the_expiration_of_the_broker(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    next(logs.glob("mixed-0/*.snapshot")).write_bytes(b"torn")
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs}\nproducer.id.expiration.ms=3600000\n")
    saved = tmp_path / "scan.json"
    saved.write_text(snaprebuild("scan", "--server-properties", properties, "--output", "json").stdout)
    commands = {each["topic_partition"]: each.get("next_command") for each in page_of(tmp_path, saved)["partitions"]}
    assert commands["mixed-0"] == f"snaprebuild verify {logs / 'mixed-0'} --expiration-ms 3600000"


# ------------------------------------------------------------------------------------------------------ transactions


def test_an_open_transaction_has_what_its_document_has(tmp_path: Path) -> None:
    path = tmp_path / "transactions.json"
    path.write_text(snaprebuild("inspect", "transactions", FIXTURES / "kafka27-mixed" / "logs", *AS_OF, "--output", "json").stdout)
    document = json.loads(path.read_text())
    data = page_of(tmp_path, path)
    assert data["documents"][0]["as_of_ms"] == document["as_of_ms"]
    by_name = {each["topic_partition"]: each for each in data["partitions"]}
    open_ones = {each["topic_partition"]: each for each in document["partitions"] if each["open"]}
    assert len(open_ones) == 3
    for name, one in open_ones.items():
        shown = by_name[name]
        assert shown["open_document"] == 0
        assert (shown["open_count"], shown["late"]) == (one["totals"]["open"], one["totals"]["late"])
        for row, each in zip(shown["open"], one["open"], strict=True):
            assert row == {member: value for member, value in each.items() if member in row and value is not None}
            assert {"since_ms", "last_ms", "epoch", "two_phase", "reason"} <= row.keys()
    assert by_name["mixed-0"]["held_segments"] == open_ones["mixed-0"]["held_segments"] > 0
    assert data["totals"]["late_transactions"] == document["totals"]["late"] == 4
    assert data["status"]["tool_command"].endswith("find-hanging --topic mixed --partition 0"), "the worst one: it holds back most"
    assert "Kafka's own tool" in data["status"]["next_text"]


def test_a_transaction_that_is_over_can_be_aborted_from_the_top(tmp_path: Path) -> None:
    path = tmp_path / "transactions.json"
    path.write_text(snaprebuild("inspect", "transactions", FIXTURES / "kafka27-mixed" / "logs", *AS_OF, "--output", "json").stdout)
    document = json.loads(path.read_text())
    (mixed,) = [each for each in document["partitions"] if each["topic_partition"] == "mixed-0"]
    commands = {"since_3_0": "abort since", "before_3_0": "abort before"}
    for each in mixed["open"]:
        each["abort_commands"] = commands
    data = page_of(tmp_path, written(document, path))
    by_name = {each["topic_partition"]: each for each in data["partitions"]}
    assert [each["abort_commands"] for each in by_name["mixed-0"]["open"]] == [commands] * 2
    assert "question" not in by_name["mixed-0"], "all of them are over"
    assert "question" in by_name["logappend-0"]
    assert data["status"]["tool_command"] == "abort since"


def test_what_waits_or_is_open_unknown_is_no_zero(tmp_path: Path) -> None:
    path = tmp_path / "scan.json"
    path.write_text(snaprebuild("scan", FIXTURES / "kafka27-killed" / "logs", "--output", "json").stdout)
    document = json.loads(path.read_text())
    data = page_of(tmp_path, path)
    unknown = document["counts"]["waiting_unknown"]
    assert unknown > 0
    assert data["totals"]["waiting_unknown_segments"] == unknown
    assert sum(each.get("waiting_unknown", 0) for each in data["partitions"]) == unknown
    assert data["totals"]["open_transactions"] is None
    assert data["totals"]["open_unknown_partitions"] == len(document["partitions"])
    assert not any("open_count" in each for each in data["partitions"])


# ------------------------------------------------------------------------------------------------------ several hosts


def a_scan(place: Path, name: str, missing: int, node_id: int, host: str) -> Path:
    """A scan with one partition, a finding and an unread path; each host has the same paths."""
    partition = scanned("orders", missing=missing)
    about = {"code": "missing-snapshots", "severity": "finding", "path": partition["path"], "message": "x", "offset": None}
    document = scan_document([partition, scanned("audit")], [about] if missing else [], node_id=node_id)
    document["run"]["host"] = host
    return written(document, place / f"{name}.json")


def test_equal_paths_of_several_hosts_are_different_partitions(tmp_path: Path) -> None:
    documents = [
        a_scan(tmp_path, f"broker-{number}", missing, number, f"host-{number}") for number, missing in ((1, 3), (2, 0), (3, 2))
    ]
    data = page_of(tmp_path, *documents)
    shown = {(each["origin"], each["topic_partition"]): each for each in data["partitions"]}
    assert len(shown) == 6
    missing = {origin: each["tones"].get("missing", 0) for (origin, name), each in shown.items() if name == "orders-0"}
    assert missing == {"host-1": 3, "host-2": 0, "host-3": 2}
    assert data["totals"]["missing_snapshots"] == 5
    assert [each["origin"] for each in data["findings"]] == ["host-1", "host-3"], "one for each host, in equal words"
    assert {key: each["tone"] for key, each in shown.items() if each.get("findings")} == {
        ("host-1", "orders-0"): "missing",
        ("host-3", "orders-0"): "missing",
    }


def test_a_host_with_another_name_in_each_run_is_one_host(tmp_path: Path) -> None:
    """A container has such names: only two documents of one command show that there are several brokers."""
    scan = a_scan(tmp_path, "scan", 3, 1, "container-1")
    transactions = tmp_path / "transactions.json"
    transactions.write_text(
        snaprebuild("inspect", "transactions", FIXTURES / "kafka27-mixed" / "logs", *AS_OF, "--output", "json").stdout
    )
    document = json.loads(transactions.read_text())
    document["run"]["host"] = "container-2"
    (mixed,) = [each for each in document["partitions"] if each["topic_partition"] == "mixed-0"]
    mixed["path"] = "/kafka/orders-0"
    mixed["topic_partition"] = "orders-0"
    document["partitions"] = [mixed]
    data = page_of(tmp_path, scan, written(document, transactions))
    by_name = {each["topic_partition"]: each for each in data["partitions"]}
    assert by_name.keys() == {"orders-0", "audit-0"}
    assert by_name["orders-0"]["documents"] == [0, 1]
    assert "origin" not in by_name["orders-0"]


def test_a_page_is_not_greener_than_its_numbers(tmp_path: Path) -> None:
    """A document without an answer, or with one that is quieter than its partitions."""
    document = scan_document([scanned("orders", missing=3), scanned("audit")])
    for name in ("answer", "next_command", "counts"):
        del document[name]
    document["exit_code"] = 0
    status = page_of(tmp_path, written(document, tmp_path / "scan.json"))["status"]
    assert (status["tone"], status["sentence"]) == ("missing", "3 snapshots missing in 2 partitions.")
    assert status["next_command"] == "snaprebuild plan /kafka/orders-0"


def test_a_suspect_that_a_replay_proves_right_is_not_verified_again(tmp_path: Path) -> None:
    logs = FIXTURES / "kafka4-mixed" / "logs"
    documents = {}
    for verb in ("scan", "verify"):
        documents[verb] = tmp_path / f"{verb}.json"
        documents[verb].write_text(snaprebuild(verb, logs, *(AS_OF if verb == "verify" else ()), "--output", "json").stdout)
    scan = json.loads(documents["scan"].read_text())
    verified = {
        (each["topic_partition"], snapshot["offset"])
        for each in json.loads(documents["verify"].read_text())["partitions"]
        for snapshot in each["snapshots"]
        if snapshot["comparison"]["status"] == "equal"
    }
    boundaries = {(each["topic_partition"], row["offset"]): row for each in scan["partitions"] for row in each["boundaries"]}
    boundaries[min(verified & boundaries.keys())]["state"] = "suspect"
    scan["counts"]["suspect"] = 1
    scan |= {"exit_code": 1, "answer": "1 snapshot suspect.", "next_command": f"snaprebuild verify {logs}"}
    written(scan, documents["scan"])
    alone = page_of(tmp_path, documents["scan"])
    assert (alone["totals"]["suspect_snapshots"], alone["status"]["next_command"]) == (1, f"snaprebuild verify {logs}")
    both = page_of(tmp_path, *documents.values())
    assert (both["totals"]["suspect_snapshots"], both["status"]["next_command"]) == (0, None)
    assert "no fault" in both["status"]["next_text"]
