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


@pytest.mark.parametrize(
    ("verbs", "unknown"),
    [
        (("scan",), {"wrong_snapshots"}),  # it reads the snapshots at the log ends, and with them open transactions
        (("fleet",), {"segments", "wrong_snapshots", "open_transactions"}),
        (("verify",), {"stuck_partitions", "open_transactions"}),
        (("scan", "verify"), set()),
    ],
    ids=["scan", "fleet", "verify", "scan and verify"],
)
def test_what_no_document_shows_is_unknown(verbs: tuple[str, ...], unknown: set[str], tmp_path: Path) -> None:
    logs = FIXTURES / "kafka27-mixed" / "logs"
    made = {each: document(tmp_path, f"{each}.json", each, logs) for each in ("scan", "verify")}
    made["fleet"] = document(tmp_path, "fleet.json", "fleet", made["scan"])
    ran = snaprebuild("report", *(made[each] for each in verbs), "--html", str(tmp_path / "page.html"), "--output", "json")
    totals = json.loads(ran.stdout)["totals"]
    assert {name for name, value in totals.items() if value is None} == unknown
