"""``tier audit --engine spark``: the documents of a run in process, and the limits of a run over all of its tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from budgets import first_of
from command import Run
from documents import check
from faulty_store import FaultyStore, objects_below
from manifests import AIVEN, FIXTURES
from same_result import without
from tiers import copied

from snaprebuild.replay.window import Clock
from snaprebuild.snapshots import run as runs
from snaprebuild.spark.job import SparkEngine
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import StoreAudit
from snaprebuild.tier.remote_store import StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SPARK = ("--engine", "spark")
OPTIONS = ("--as-of", "2026-11-20", "--set", f"private_key={AIVEN / 'keys' / 'key1.private.pem'}", "--output", "json")
Command = Callable[..., Run]


def reported(run: Run) -> tuple[str, str, int]:
    """All that a run prints, with its order, but the run itself, its time, and the options that its next command repeats."""
    check(json.loads(run.stdout))
    return json.dumps(without(json.loads(run.stdout), ("run", "elapsed_seconds", "next_command"))), run.stderr, run.exit_code


@pytest.mark.parametrize("level", first_of(["full", "reachable"], "night"))
def test_the_same_document_as_in_process(spark: SparkSession, command: Command, tmp_path: Path, level: str) -> None:
    """Every variant of the plugin's layout, in one store; some copies lie there twice.

    A local log start offset goes with one topic id only.
    """
    for variant in ["plain"] if level == "reachable" else sorted(path.parent.name for path in AIVEN.glob("*/store")):
        shutil.copytree(AIVEN / variant / "store", tmp_path / "store", dirs_exist_ok=True)
    for path in sorted((tmp_path / "store").rglob("00000000000000000583-*")):
        copied(path, "Z")
    starts = ("--local-log-start", "mixed-0=1500") if level == "reachable" else ()
    for store in (tmp_path / "store", FIXTURES / "tiered-local" / "remote"):
        own, by_spark = (command("tier", "audit", store, *OPTIONS, "--level", level, *starts, *engine) for engine in ((), SPARK))
        assert reported(by_spark) == reported(own)
        assert json.loads(own.stdout)["partitions"]


def test_executors_decode_the_records(
    spark: SparkSession, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy has a batch with a wrong byte. The driver decodes nothing."""
    store = shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "store")
    path = min(store.rglob("*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    line = ("tier", "audit", store, *OPTIONS, "--level", "records")
    own = command(*line)
    monkeypatch.setattr("snaprebuild.tier.audit.record_check._copy_records", None)
    assert reported(command(*line, *SPARK)) == reported(own)
    document = json.loads(own.stdout)
    assert document["partitions"][0]["records_read"] > 5_000
    assert "tier-damaged-records" in {finding["code"] for finding in document["findings"]}


def values(audit: StoreAudit) -> list[object]:
    """All that an audit found, as values: partitions and copies are compared by identity."""
    found: list[object] = [audit.findings]
    for partition in audit.partitions:
        members = {each.name: getattr(partition, each.name) for each in fields(partition)}
        copies = [{each.name: getattr(copy, each.name) for each in fields(copy)} for copy in members.pop("copies")]
        found += [partition.remote.id, [copy.copy.start_offset for copy in members.pop("readable")], copies]
        del members["remote"]
        found.append(members)
    return found


def test_a_large_partition_in_chunks(spark: SparkSession) -> None:
    """Its snapshots are judged in several tasks."""
    place = str(FIXTURES / "tiered-local" / "remote")
    clock = Clock(1_795_132_800_000, 86_400_000)
    own, by_spark = (
        tier_audit(
            StoreAccess(StorePath(LocalStore(), place)), runs.Run(clock=clock, jobs=1), engine=lambda _, chosen=chosen: chosen
        )
        for chosen in (None, SparkEngine(spark, chunk_bytes=1))
    )
    assert values(by_spark) == values(own)
    assert len(own.partitions[0].copies) == 12


# ------------------------------------------------------------------------------------------------------------------------ limits


@pytest.fixture
def store(faulty: FaultyStore) -> FaultyStore:
    """One of the plugin's layout, with compressed segments and a wrong snapshot."""
    faulty.objects = objects_below(AIVEN / "diseased-zstd" / "store", "b/tier")
    return faulty


def test_what_was_announced_suffices_and_less_does_not(store: FaultyStore, command: Command) -> None:
    """Each manifest is read once, each request was announced, and with one less no segment is read: the result is what was read.

    In process: ``tests/tier/test_audit_cost.py``.
    """
    line = ("tier", "audit", "s3://b/tier", *OPTIONS, "--set", "s3_path_style=true", "--s3-endpoint-url", store.endpoint, *SPARK)
    run = command(*line)
    assert run.exit_code == 1
    methods = [(method, path) for method, path, _ in store.seen]
    manifests = [path for _, path in methods if path.endswith(".rsm-manifest")]
    assert len(manifests) == len(set(manifests)) == 3
    assert {method for method, _ in methods} == {"GET"}
    document = json.loads(run.stdout)
    requests, needed = len(methods), document["estimate"]["requests"]
    assert requests == 2 + len(manifests) + needed, "one listing tells whether the path is a directory or a prefix"
    manifest_bytes = sum(len(data) for key, data in store.objects.items() if key.endswith(".rsm-manifest"))
    size = manifest_bytes + document["estimate"]["read_bytes"]
    for setting, enough in (("max_requests", requests), ("max_read_bytes", size)):
        assert reported(command(*line, "--set", f"{setting}={enough}")) == reported(run)
        store.seen.clear()
        limited = command(*line, "--set", f"{setting}={enough - 1}")
        assert (limited.exit_code, f"{setting} {enough - 1}" in limited.stderr) == (1, True)
        document = json.loads(limited.stdout)
        check(document)
        assert {copy["verdict"] for each in document["partitions"] for copy in each["copies"]} <= {"not-read", "zero-bytes"}
        assert len(store.seen) <= requests
        assert not any(path.endswith(".log") for _, path, _ in store.seen), "nothing was begun that could not be ended"


def test_tasks_decode_records_within_the_limit(store: FaultyStore, spark: SparkSession, command: Command) -> None:
    """The limit that one process needs is enough, and the result of less is that of one process."""
    line = ("tier", "audit", "s3://b/tier", *OPTIONS, "--level", "records")
    line = (*line, "--set", "s3_path_style=true", "--s3-endpoint-url", store.endpoint)
    own = command(*line, "--jobs", "1")
    needed = len(store.seen)
    store.seen.clear()
    assert reported(command(*line, *SPARK, "--set", f"max_requests={needed}")) == reported(own)
    assert len(store.seen) == needed
    limited = [command(*line, *engine, "--set", f"max_requests={needed - 1}") for engine in (("--jobs", "1"), SPARK)]
    assert reported(limited[1]) == reported(limited[0])
    assert "tier-limit" in {finding["code"] for finding in json.loads(limited[0].stdout)["findings"]}


def test_turns_with_a_ledger(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    """Executors read what is due, and the driver judges: the verdicts and proofs of turns in process, in one ledger."""
    line = ("tier", "audit", FIXTURES / "tiered-local" / "remote", *OPTIONS, "--jobs", "1")
    limit = ("--set", "max_read_bytes=300000")
    own = [command(*line, "--ledger", tmp_path / "own", *limit) for _ in range(3)]
    by_spark = [command(*line, "--ledger", tmp_path / "spark", *limit, *SPARK) for _ in range(3)]
    for one, other in zip(own, by_spark, strict=True):
        documents = [json.loads(run.stdout) for run in (one, other)]
        for each in documents:
            check(each)
        verdicts = [[(copy["verdict"], copy["proof_kind"]) for copy in each["partitions"][0]["copies"]] for each in documents]
        assert verdicts[0] == verdicts[1]
        assert documents[0]["ledger"]["read_segments"] == documents[1]["ledger"]["read_segments"] > 0
        assert one.exit_code == other.exit_code == 0
    assert json.loads(by_spark[-1].stdout)["ledger"]["proven"] == 12
