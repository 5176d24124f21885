"""The option ``--ledger`` of ``tier audit``: requests over turns, the first line, the document, the metrics, and runs that are killed."""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from budgets import TIER
from command import COMMAND, in_json, snaprebuild
from faulty_store import FaultyStore, objects_below
from manifests import AIVEN, FIXTURES, REPOSITORY

PATHS = ("tier", "audit", "s3://b/tier", "--as-of", "2026-11-20", "--set", "s3_path_style=true")
LOCAL = FIXTURES / "tiered-local" / "remote"
METADATA_LOG = ("--metadata-log", FIXTURES / "tiered-local" / "logs")
AS_OF = ("--as-of", "1795132800000")


@pytest.fixture
def plugin(faulty: FaultyStore) -> FaultyStore:
    """A store of the plugin, with compressed segments and a wrong snapshot."""
    faulty.objects = objects_below(AIVEN / "diseased-zstd" / "store", "b/tier")
    return faulty


def ranges(store: FaultyStore) -> Counter[tuple[str, str]]:
    """Each range of an object that was requested, and how often. Listings are not counted."""
    found = [(path, headers.get("range", "all")) for _, path, headers in store.seen if "list-type" not in path and "." in path]
    store.seen.clear()
    return Counter(found)


def test_no_range_of_an_object_is_requested_twice(plugin: FaultyStore, tmp_path: Path) -> None:
    line = (*PATHS, "--s3-endpoint-url", plugin.endpoint)
    whole = in_json(*line)
    once = ranges(plugin)
    assert set(once.values()) == {1}
    turns, total = [], Counter[tuple[str, str]]()
    most = whole.document["estimate"]["read_bytes"] // 2
    for _ in range(20):
        limit = ("--set", f"max_read_bytes={most}")
        turns.append(in_json(*line, "--ledger", tmp_path / "ledger", *limit))
        total += ranges(plugin)
        if turns[-1].document["ledger"]["due_segments"] == 0:
            break
    assert len(turns) > 2
    # One manifest shows the name of the topic before anything else is known.
    assert list((total - once).values()) == [len(turns) - 1]
    assert not once - total
    last = turns[-1]
    assert [copy["verdict"] for copy in last.document["partitions"][0]["copies"]] == [
        copy["verdict"] for copy in whole.document["partitions"][0]["copies"]
    ]
    assert (last.exit_code, last.codes["tier-wrong-snapshot"]) == (whole.exit_code, whole.codes["tier-wrong-snapshot"])


def test_a_limit_of_requests(plugin: FaultyStore, tmp_path: Path) -> None:
    """Manifests that were read count as progress, so that a store with many copies ends some day."""
    line = (*PATHS, "--s3-endpoint-url", plugin.endpoint, "--ledger", tmp_path / "ledger")
    proven = []
    for _ in range(30):
        run = in_json(*line, "--set", "max_requests=10")
        assert sum(ranges(plugin).values()) <= 10
        proven.append(run.document["ledger"]["proven"])
        if "tier-waits" not in run.codes:
            break
    assert "tier-waits" not in run.codes
    assert proven == sorted(proven)


def test_the_first_line_the_document_and_the_metrics(tmp_path: Path) -> None:
    line = ("tier", "audit", LOCAL, *METADATA_LOG, *AS_OF, "--jobs", "1", "--ledger", tmp_path / "ledger")
    first = in_json(*line, "--set", "max_read_bytes=150000")
    progress = first.document["ledger"]
    assert first.exit_code == 0
    assert 0 < progress["proven"] < progress["copies"] == 12
    assert progress["due_segments"] == 12 - progress["read_segments"]
    assert progress["oldest_unproven_ms"] > 0
    copies = first.document["partitions"][0]["copies"]
    assert [copy["proof_kind"] for copy in copies if copy["proven_ms"] is not None] == ["from-offset-0"] * progress["proven"]
    assert min(copy["proven_ms"] for copy in copies if copy["proven_ms"] is not None) == progress["since_ms"]
    day = time.strftime("%Y-%m-%d", time.gmtime(progress["since_ms"] / 1000))
    run = snaprebuild(*line, "--set", "max_read_bytes=150000", "--metrics", tmp_path / "x.prom")
    assert run.stdout.startswith("Proven ")
    assert f" of 12 snapshots since {day}. No snapshot wrong in 1 partition." in run.stdout.splitlines()[0]
    metrics = (tmp_path / "x.prom").read_text()
    for name in ("proven_copies", "oldest_proof_timestamp_seconds", "oldest_unproven_timestamp_seconds", "due_bytes"):
        assert f"\nsnaprebuild_tier_audit_{name}{{" in metrics, name
    assert "\nNext: run this command again, 8 segments of this round left to read.\n" in run.stdout


def test_what_is_announced_is_what_a_turn_reads(tmp_path: Path) -> None:
    """A new round reads everything again, and a limit of the run takes a part of that."""
    line = ("tier", "audit", LOCAL, *METADATA_LOG, *AS_OF, "--jobs", "1")
    whole = in_json(*line).document["estimate"]
    turn = (*line, "--ledger", tmp_path / "ledger")
    for _ in range(2):
        assert in_json(*turn).document["estimate"] == whole
    limited = in_json(*turn, "--set", "max_read_bytes=150000").document
    assert 0 < limited["estimate"]["copies"] == limited["ledger"]["read_segments"] < whole["copies"]
    assert limited["ledger"]["read_bytes"] <= limited["estimate"]["read_bytes"] <= 150000
    nothing = snaprebuild(*turn, "--set", "max_read_bytes=1")
    assert "to be read: 0 copies, 0 objects, 0 B\n" in nothing.stderr


def test_a_ledger_is_of_one_key_prefix(tmp_path: Path) -> None:
    """With another one, the copies that it has would not be listed, and what it has proven of them would be dropped."""
    store = tmp_path / "store"
    plain = next(iter((AIVEN / "plain" / "store").rglob("*.rsm-manifest"))).parent.parent.parent
    for prefix in ("a", "b"):
        shutil.copytree(plain, store / prefix)
    line = ("tier", "audit", store, "--as-of", "2026-11-20", "--ledger", tmp_path / "ledger")
    first = in_json(*line, "--set", "key_prefix=a/")
    assert first.document["ledger"]["proven"] > 0
    kept = (tmp_path / "ledger").read_bytes()
    for arguments, found in ((("--set", "key_prefix=b/"), "'b/'"), ((), "''")):
        other = snaprebuild(*line, *arguments)
        assert other.exit_code == 2
        assert f"is the ledger of another key_prefix: expected {found}, found 'a/'" in other.stderr
        assert (tmp_path / "ledger").read_bytes() == kept
    again = snaprebuild(*line, "--set", "key_prefix=a/")
    assert f"Proven {first.document['ledger']['proven']} of {first.document['ledger']['copies']} " in again.stdout


def test_other_levels_have_no_ledger(tmp_path: Path) -> None:
    run = snaprebuild("tier", "audit", LOCAL, "--level", "structure", "--ledger", tmp_path / "ledger")
    assert (run.exit_code, run.stderr) == (2, "snaprebuild: --ledger goes with --level full\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_runs_that_are_killed_at_any_moment(tmp_path: Path) -> None:
    """The ledger is whole after each, and the last run has the verdicts of one whole audit."""
    store = tmp_path / "store"
    shutil.copytree(LOCAL, store)
    line = ("tier", "audit", store, *METADATA_LOG, *AS_OF, "--jobs", "1")
    whole = in_json(*line)
    words = [*COMMAND, *map(str, line), "--ledger", str(tmp_path / "ledger"), "--set", "max_read_bytes=200000"]
    rng = random.Random(7)
    for _ in range(12 if TIER == "full" else 100):
        process = subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.2, 2.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    for _ in range(20):
        last = in_json(*line, "--ledger", tmp_path / "ledger", "--set", "max_read_bytes=400000")
        assert last.exit_code == 0
        if not last.document["ledger"]["due_segments"]:
            break
    assert [copy["verdict"] for copy in last.document["partitions"][0]["copies"]] == [
        copy["verdict"] for copy in whole.document["partitions"][0]["copies"]
    ]
    # A run that is killed as it writes the ledger whole leaves the file that was to get its name.
    others = {path.name for path in tmp_path.iterdir()} - {"ledger", "store"}
    assert all(re.fullmatch(r"\.ledger-[0-9a-f]{8}", name) for name in others), others
