"""Verbs that read remote storage against a store that fails at any one of their requests.

The answer is that of a store without the failure, or it says what was not read. A failure is never damage, and never health.
"""

from pathlib import Path

import pytest
from budgets import TIER
from command import Run, snaprebuild
from faulty_store import FaultyStore, faulty_store
from manifests import FIXTURES, LONG_AGO
from s3_faults import BUCKET, _failing, impatient

STORES = {"plain": (), "encrypted-zstd": ("--set", f"private_key={FIXTURES / 'aiven-layout' / 'keys' / 'key1.private.pem'}")}
VERBS = {
    "inventory": ("tier", "inventory"),
    "audit": ("tier", "audit", *LONG_AGO),
    "metadata": ("tier", "metadata", "--custom-metadata", "none"),
}
ONCE = ("503", "500", "403", "drop", "short", "reset", "etag", "range", "whole", "gone")
LASTING = ("503", "drop", "gone")
STRIDE = {"quick": 41, "full": 7, "night": 1}[TIER]


def objects_of(name: str) -> dict[str, bytes]:
    root = FIXTURES / "aiven-layout" / name / "store"
    return {f"{BUCKET}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in root.rglob("*") if path.is_file()}


def ran(words: tuple[str, ...], store: FaultyStore) -> Run:
    store.seen.clear()
    verb, rest = words[:2], words[2:]
    options = (
        "--output",
        "json",
        "--s3-endpoint-url",
        store.endpoint,
        "--set",
        "s3_path_style=true",
        "--set",
        "max_read_bytes=1GiB",
    )
    return snaprebuild(*verb, f"s3://{BUCKET}", *rest, *options)


def answer(run: Run) -> object:
    """The document without times and counts of the run."""
    document = dict(run.document)
    for name in ("as_of_ms", "elapsed_seconds", "bucket", "findings"):  # what calls about the bucket lack is no failure of the rest
        document.pop(name, None)
    for partition in document["partitions"]:
        for copy in partition["copies"]:
            copy.pop("age_ms", None)
    return document


def is_incomplete(run: Run) -> bool:
    """Whether the answer says that something was not read."""
    return run.document["unread"] > 0 or "tier-not-audited" in run.codes


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("verb", ["inventory", "metadata", pytest.param("audit", marks=pytest.mark.full)])
def test_a_failure_is_neither_damage_nor_health(tmp_path: Path, verb: str, name: str) -> None:
    words = (*VERBS[verb], *STORES[name])
    wrong = []
    with impatient(), faulty_store() as store:
        store.objects.update(objects_of(name))
        healthy = ran(words, store)
        requests = len(store.seen)
        assert requests >= 3
        table = [(index, fault, False) for index in range(requests) for fault in ONCE]
        table += [(index, fault, True) for index in range(requests) for fault in LASTING]
        for index, fault, is_lasting in table[::STRIDE]:
            store.choose = _failing(index, fault, is_lasting=is_lasting)
            run = ran(words, store)
            what = f"{fault} {'from' if is_lasting else 'at'} request {index}"
            if run.exit_code == healthy.exit_code:
                is_told = "tier-deleted-meanwhile" in run.stdout or (run.exit_code == 1 and is_incomplete(run))
                if answer(run) != answer(healthy) and not is_told:
                    wrong.append(f"{what}: exit code {run.exit_code} with another answer: {run.stderr[-300:]}")
            elif run.exit_code not in (1, 3, 5):
                wrong.append(f"{what}: exit code {run.exit_code}: {run.stderr[-300:]}")
    assert wrong == []
