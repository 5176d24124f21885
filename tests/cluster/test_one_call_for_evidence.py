"""Whether a replica may be a source is asked through one call, so that evidence is collected, compared and judged in one order."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "snaprebuild.cluster.source_check"
ALLOWED = {
    ("verdict", "judge"): {"snaprebuild/cluster/source_check/source_verdicts.py"},
    # Compares producer ids of a scan; it judges no replica.
    ("evidence_collector", "EvidenceCollector"): {
        "snaprebuild/cluster/source_check/source_verdicts.py",
        "snaprebuild/cluster/scan_producer_ids.py",
    },
}
CALLERS = {
    "snaprebuild/cluster/source_check/check.py",
    "snaprebuild/cluster/source_check/plan_gate.py",
    "snaprebuild/followers/build.py",
    "snaprebuild/tier/upload/source_check.py",
}


def importers(module: str, name: str) -> set[str]:
    """The files of the product that import a name."""
    found = set()
    for path in (ROOT / "snaprebuild").rglob("*.py"):
        text = path.read_text()
        if name not in text or f"{PACKAGE}.{module}" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            is_import = isinstance(node, ast.ImportFrom) and node.module == f"{PACKAGE}.{module}"
            if is_import and any(alias.name == name for alias in node.names):
                found.add(path.relative_to(ROOT).as_posix())
    return found


def test_nobody_else_judges_or_collects() -> None:
    for (module, name), files in ALLOWED.items():
        assert importers(module, name) == files, name


def test_the_commands_ask_by_the_one_call() -> None:
    assert importers("source_verdicts", "judge_sources") == CALLERS
