"""Facts that a run reads once, and listings that it repeats."""

import ast
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from every_verb import healthy
from manifests import REPOSITORY

from snaprebuild.broker.start_facts import Shutdown
from snaprebuild.errors import LockUnknownError, RefusedError, UsageError
from snaprebuild.findings import FindingCause
from snaprebuild.snapshots import run as run_module
from snaprebuild.snapshots.run import Run, RunFacts
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import verify
from snaprebuild.storage.local.broker_lock import hold

PACKAGE = REPOSITORY / "snaprebuild"
CALLS = ("lock_holder", "read_server_properties")
ASK_THEMSELVES = {
    "snapshots/run.py": "reads for the run",
    "snapshots/source/source.py": "whether the cleaner is at work: of directories with its files only",
    "snapshots/receipts/undo.py": "a dry run of undo opens no source",
    "storage/local/broker_lock.py": "whether the process that was read about still holds the lock",
}
"""Modules with one of the `CALLS`."""
LIST_AGAIN = {
    "snapshots/source/second_look.py": "has the loops",
    "snapshots/scan/scan.py": "compares two looks, with the listings of the module above",
}
"""Modules with a loop that continues after a file was gone."""


def modules_with(*words: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield path.relative_to(PACKAGE).as_posix(), ast.parse(text)


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def test_facts_are_read_by_the_run() -> None:
    asking = {
        name
        for name, tree in modules_with(*CALLS)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and names_in(call.func).intersection(CALLS)
    }
    assert asking == set(ASK_THEMSELVES)


def test_directories_are_listed_again_in_one_module() -> None:
    listing = {
        name
        for name, tree in modules_with("GoneFileError")
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For | ast.While)
        for handler in ast.walk(loop)
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None and "GoneFileError" in names_in(handler.type)
    }
    assert listing == set(LIST_AGAIN)


def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, path = RunFacts(), tmp_path / "server.properties"
    with pytest.raises(UsageError, match="does not exist"):
        facts.properties(str(path))
    path.write_text("broker.id=1\n")
    assert facts.properties(str(path)).get("broker.id") == "1"
    path.unlink()
    monkeypatch.chdir(tmp_path)
    assert facts.properties("server.properties").get("broker.id") == "1", "the same file by another name"
    assert facts.holder(str(tmp_path)) is None
    monkeypatch.setattr(run_module, "lock_holder", lambda _: 1)
    assert facts.holder(str(tmp_path)) is None


def test_a_broker_that_starts_while_segments_are_read(tmp_path: Path) -> None:
    """Segments are read for hours. What is reported then, also about the next start, is that of a running broker."""
    for name, data in healthy().items():
        if name.startswith("bare/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
    facts, log_dir = RunFacts(), str(tmp_path / "bare")
    source = open_source([log_dir], run=Run(facts=facts))
    assert scan_source(source).log_dirs[0].shutdown is not Shutdown.RUNNING
    with ExitStack() as broker:

        def start(_topic_partition: str, _read_bytes: int) -> None:
            with suppress(RefusedError):  # it runs
                broker.enter_context(hold(log_dir))

        result = verify(source, Run(facts=facts, jobs=1), progress=start)
        assert [each.path for each in result.findings if each.cause is FindingCause.LIVE_BROKER] == [log_dir]
        assert scan_source(source).log_dirs[0].shutdown is Shutdown.RUNNING


def test_an_unknown_holder_stays_unknown(tmp_path: Path) -> None:
    facts, absent = RunFacts(), tmp_path / "absent"
    for _ in range(2):
        with pytest.raises(LockUnknownError, match="is no directory"):
            facts.holder(str(absent))
        absent.mkdir(exist_ok=True)
