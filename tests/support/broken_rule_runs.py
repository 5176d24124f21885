"""Breaks the rules of the replays and the steps of publishing a file, one at a time, and shows which test notices.

Each one is broken in a process of its own (break_rule.py), which runs the tests that may notice, up to the first failure.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / directory) for directory in ("faults", "broker")]

from broken_code import BrokenCode, read_broken_codes  # noqa: E402

BROKEN_RULES = read_broken_codes(ROOT / "tests" / "broker" / "broken_replays.diff")
BROKEN_STEPS = read_broken_codes(ROOT / "tests" / "faults" / "broken_steps.diff")

RULES_SEEN_MIN = 90
"""Rules of the 95 that the quick tier must see."""
SECONDS_MAX = 900

REPLAYS = (
    *("broker/test_generated_logs.py", "replay/test_vectors.py", "formats/test_control_record.py", "replay/test_transactions.py"),
    *("replay/test_running_effect.py", "replay/test_segment_effect.py", "formats/test_batch_headers.py", "replay/test_fixtures.py"),
)
BASES = tuple(f"snapshots/test_{name}.py" for name in ("evidence_for_first_snapshot", "base_histories", "contradicted_base"))
CLASSES = ("snapshots/test_tiered_log_start.py", "snapshots/test_contradicted_base.py", "snapshots/test_one_class.py")
FILES = (
    *("storage/test_file_calls.py", "storage/test_local_files.py", "storage/test_publish.py", "storage/test_whole_file.py"),
    *("faults/test_full_disk.py", "faults/test_crash_points.py"),
)
INSTALL = ("cli/test_install.py", "cli/test_install_copies.py", "cli/test_install_later.py")
RECORDS = ("record_ranges", "damage_is_said", "remote_records", "damaged_records", "record_stream", "named_exports")
WRITERS, GUARDED = "faults/test_watched_writers.py", "snapshots/test_guarded_writes.py"
TESTS = {
    **dict.fromkeys(("fold", "markers", "effect", "composition"), REPLAYS),
    "base": BASES,
    "class": CLASSES,
    **dict.fromkeys(("create", "directory", "calls", "lock", "second name", "remove", "set aside"), FILES),
    "replace": ("faults/test_replace_crash.py",),
    "written directory": ("cli/test_follower_build.py",),
    "partition": ("faults/test_new_directory.py", WRITERS),
    "plan": ("storage/test_small_file.py", WRITERS),
    "table": ("storage/test_new_file.py",),
    **dict.fromkeys(("directories", "local", "large file"), ("storage/test_local_files.py",)),
    "journal": ("storage/test_journal_file.py", "storage/test_local_files.py", WRITERS),
    "ledger": ("tier/test_ledger_file.py",),
    "receipt": (WRITERS,),
    "receipt part": ("snapshots/test_receipt_parts.py",),
    "in place": (GUARDED, "cli/test_broker_running.py"),
    **dict.fromkeys(("staged", "install"), (GUARDED, WRITERS, *INSTALL)),
    "object": ("storage/test_s3.py",),
    "replaced object": ("storage/test_s3_replace.py",),
    "parts": ("storage/test_s3_parts.py",),
    "repair": (GUARDED, WRITERS, "tier/test_tier_repair.py"),
    "undone repair": ("cli/test_tier_repair.py",),
    "metadata end": ("cluster/test_lost_ends.py",),
    "verdict": ("cluster/test_broken_so_far.py", "cluster/test_source_rules.py", "cluster/test_source_evidence.py"),
    "quorum": ("cluster/test_quorum_rules.py", "cluster/test_lost_ends.py"),
    "fleet": ("cluster/test_fleet_coverage.py",),
    "present": ("cli/test_tier_upload.py",),
    "scan": ("cluster/test_scan_storage.py",),
    "audit": ("tier/test_limited_audit.py", "snapshots/test_evidence_for_first_snapshot.py"),
    "readiness": ("snapshots/test_topic_ids.py", "cli/test_topic_id_zero.py"),
    "producer ids": ("cluster/test_producer_ids.py",),
    "left-over": ("cli/test_source_check.py",),
    "remote producer ids": ("tier/test_tier_producer_ids.py",),
    "source rule": ("cluster/test_source_rule_states.py",),
    "quorum rule": ("cluster/test_quorum_rule_states.py", "cluster/test_quorum_rules.py"),
    "records": (*(f"consume/test_{name}.py" for name in RECORDS), "tier/test_audit_records.py"),
    "upload": (GUARDED, WRITERS, "tier/test_upload_crashes.py", "tier/test_upload_fence.py"),
}
"""The tests that may notice, by the first word of the name; those that likely do first."""


@dataclass(frozen=True)
class Answer:
    """Which test notices a broken rule or step.

    Attributes:
        broken: the rule or step.
        quick: the first test of the quick tier that fails; None if all pass.
        full: the same of the full tier, of which the quick tier is a part.
    """

    broken: BrokenCode
    quick: str | None
    full: str | None


def files_of(codes: Iterable[BrokenCode]) -> list[str]:
    """The files of the tests that may notice, each once."""
    return list(dict.fromkeys(file for code in codes for file in TESTS[code.name.partition(":")[0]]))


def first_failure(files: Sequence[str], tier: str, name: str = "") -> str | None:
    """The first test of some files that fails while a rule or step is broken; None if all pass.

    Raises:
        RuntimeError: pytest itself fails, or does not end.
    """
    environment = os.environ | {"TEST_TIER": tier, "TEST_BROKEN_RULE": name, "PYTHONPATH": str(ROOT / "tests" / "support")}
    with tempfile.TemporaryDirectory(prefix="broken-") as place:
        command = [sys.executable, "-m", "pytest", "-p", "break_rule", "-p", "no:cacheprovider", "-x", "-q", "--tb=no", "-rfE"]
        command += [f"--basetemp={place}/tests", *(f"tests/{file}" for file in files)]
        try:
            done = subprocess.run(
                command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{name or 'nothing broken'}: the tests do not end") from None
    failed = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if bool(failed) != (done.returncode != 0):
        raise RuntimeError(f"{name or 'nothing broken'}: pytest ends with {done.returncode}: {done.stdout}{done.stderr}")
    return failed[0].partition(" - ")[0].removeprefix("tests/") if failed else None


def answers(codes: Iterable[BrokenCode], *, asks_full: bool = True) -> Iterator[Answer]:
    """Breaks one after the other. The full tier is asked only if the quick tier does not notice."""
    for code in codes:
        files = files_of([code])
        quick = first_failure(files, "quick", code.name)
        full = quick
        if quick is None and asks_full:
            full = first_failure(files, "full", code.name)
        yield Answer(code, quick, full)


def check_unbroken(codes: Iterable[BrokenCode]) -> None:
    """Makes sure that the same tests pass while nothing is broken.

    Raises:
        RuntimeError: one fails.
    """
    failed = first_failure(files_of(codes), "quick")
    if failed is not None:
        raise RuntimeError(f"{failed} fails although nothing is broken")


def shortfalls(found: Sequence[Answer]) -> list[str]:
    """Reasons for which the quick tier is no proof, from answers for all rules and steps."""
    unseen = [each.broken for each in found if each.quick is None]
    steps = [each.name for each in unseen if each in BROKEN_STEPS]
    seen = len(BROKEN_RULES) - sum(each in BROKEN_RULES for each in unseen)
    short = [f"the quick tier does not see this step: {name}" for name in steps]
    if seen < RULES_SEEN_MIN:
        short.append(f"the quick tier sees {seen} of {len(BROKEN_RULES)} rules, expected at least {RULES_SEEN_MIN}")
    return short
