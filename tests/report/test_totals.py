"""The numbers at the top of a page: what no document of it shows is unknown, never zero."""

import json
from pathlib import Path

import pytest
from command import snaprebuild
from manifests import FIXTURES


def document(directory: Path, name: str, *command: object) -> str:
    """A saved document."""
    path = directory / name
    path.write_text(snaprebuild(*map(str, command), "--output", "json").stdout)
    return str(path)


COMPARED = ("wrong_snapshots", "wrong_entries", "unverifiable_snapshots")

SCANNED = (
    *("segments", "suspect_snapshots", "missing_snapshots", "fates", "waiting_segments", "waiting_unknown_segments"),
    "stuck_partitions",
)


@pytest.mark.parametrize(
    ("verbs", "unknown"),
    [
        (("scan",), {*COMPARED, "late_transactions"}),  # it reads the snapshots at the log ends, and with them open transactions
        (("fleet",), {*COMPARED, "segments", "open_transactions", "late_transactions"}),
        (("verify",), {"stuck_partitions", "open_transactions", "late_transactions"}),
        (("scan", "verify"), {"late_transactions"}),
        (("inspect-transactions",), {*COMPARED, *SCANNED}),
        (("scan", "verify", "inspect-transactions"), set()),
    ],
    ids=["scan", "fleet", "verify", "scan and verify", "transactions", "all three"],
)
def test_what_no_document_shows_is_unknown(verbs: tuple[str, ...], unknown: set[str], tmp_path: Path) -> None:
    logs = FIXTURES / "kafka27-mixed" / "logs"
    made = {each: document(tmp_path, f"{each}.json", *each.split("-"), logs) for each in ("scan", "verify", "inspect-transactions")}
    made["fleet"] = document(tmp_path, "fleet.json", "fleet", made["scan"])
    ran = snaprebuild("report", *(made[each] for each in verbs), "--html", str(tmp_path / "page.html"), "--output", "json")
    totals = json.loads(ran.stdout)["totals"]
    assert {name for name, value in totals.items() if value is None} == unknown
