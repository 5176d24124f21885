"""One damaged store, and what each verb answers: no verb gives an all-clear where another one proves a fault.

Each row is a fault that ``tier_faults`` makes, so that what is wrong is known. A cell is a verb's exit code with the word of its status.
A verb that does not read the damaged part may say no more than that it is well as far as it was read.
"""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from manifests import AIVEN, LONG_AGO
from sentences import AGAIN
from tier_faults import FAULTS, StoreFault, write_store

from cli.test_next_command import next_line, next_words

AS_OF = ("--as-of", "1795266500000")
ONE_JOB = ("--jobs", "1")

Words = Callable[[Path], tuple[object, ...]]

COMMANDS: dict[str, Words] = {
    "inventory": lambda place: ("tier", "inventory", place / "remote"),
    "structure": lambda place: ("tier", "audit", place / "remote", *AS_OF, "--level", "structure"),
    "audit": lambda place: ("tier", "audit", place / "remote", *AS_OF, *ONE_JOB),
    "repair": lambda place: ("tier", "repair", place / "remote", *AS_OF, *ONE_JOB, "--dry-run"),
    "plan": lambda place: ("follower", "plan", place / "remote", place / "follower", *ONE_JOB),
    "check": lambda place: ("follower", "check", place / "remote", place / "follower", *AS_OF, *ONE_JOB),
    "follower repair": lambda place: ("follower", "repair", place / "remote", place / "follower", *AS_OF, *ONE_JOB, "--dry-run"),
}

OK = "0 healthy"
UNREAD = "0 unknown"
"""Nothing was replayed: no snapshot is proven, and the next command replays them."""

BAD = "4 damaged"
LEFT = "1 damaged"
FOUND = "1 finding"
"""A finding that is in no count: a bootstrap that never ends, or a segment of which two uploads wrote nothing."""

WRONG = "1 wrong"
CORRUPT = "4 wrong"
NOT_REPLACED = "3 wrong"
"""LocalTieredStorage keeps a snapshot in a file of its own, which `tier repair` refuses to replace."""

UNKNOWN = "1 unknown"
NO_STORE = "2 -"

VERIFIED = {
    "healthy": (OK, UNREAD, OK, OK, OK, OK, OK),
    "a byte of a segment is flipped": (OK, UNREAD, BAD, BAD, OK, BAD, BAD),
    "a segment is cut": (BAD, BAD, BAD, BAD, OK, BAD, BAD),
    "a snapshot does not parse": (OK, CORRUPT, CORRUPT, NOT_REPLACED, OK, CORRUPT, CORRUPT),
    "a snapshot is an older one": (OK, "1 suspect", WRONG, NOT_REPLACED, OK, WRONG, WRONG),
    "a snapshot is empty": (OK, "1 suspect", WRONG, NOT_REPLACED, OK, WRONG, WRONG),
    "a snapshot has no bytes": (OK, WRONG, WRONG, NOT_REPLACED, OK, WRONG, WRONG),
    "a segment is missing": (BAD, BAD, BAD, BAD, BAD, BAD, BAD),
    "an object is missing": (BAD, BAD, BAD, BAD, BAD, BAD, BAD),
    "a copy is missing": (BAD, BAD, BAD, BAD, BAD, BAD, BAD),
    "a copy is unfinished": (OK, UNREAD, OK, OK, OK, OK, OK),
    "a copy never began": (FOUND, UNREAD, OK, OK, OK, OK, OK),
    "an index is torn": (BAD, BAD, BAD, BAD, OK, OK, OK),
    "the bucket is empty": (BAD, BAD, BAD, BAD, BAD, BAD, BAD),
    "it is another prefix": (BAD, BAD, BAD, BAD, BAD, BAD, BAD),
}
"""With the metadata log, by fault; the columns are those of ``COMMANDS``."""

ALONE = VERIFIED | {
    "a segment is cut": (OK, UNREAD, BAD, BAD, OK, UNKNOWN, UNKNOWN),
    "a segment is missing": (LEFT, LEFT, LEFT, LEFT, LEFT, LEFT, LEFT),
    "an object is missing": (LEFT, LEFT, LEFT, LEFT, LEFT, LEFT, LEFT),
    "a copy is missing": (OK, UNREAD, UNKNOWN, UNKNOWN, OK, UNKNOWN, UNKNOWN),
    "a copy is unfinished": (LEFT, LEFT, LEFT, LEFT, LEFT, LEFT, LEFT),
    "a copy never began": (OK, UNREAD, OK, OK, OK, OK, OK),
    "the bucket is empty": (NO_STORE, NO_STORE, NO_STORE, NO_STORE, FOUND, NO_STORE, NO_STORE),
    "it is another prefix": (NO_STORE, NO_STORE, NO_STORE, NO_STORE, FOUND, NO_STORE, NO_STORE),
}
"""Without it a copy that lacks objects may be one that is being written, and a copy that is gone is no copy."""


def cell(exit_code: int, document: dict[str, Any] | None) -> str:
    return f"{exit_code} {'-' if document is None else document['status']}"


def answers(place: Path, options: tuple[object, ...]) -> dict[str, tuple[int, dict[str, Any] | None]]:
    """Exit code and document of each command; no document where it ended with an error."""
    found: dict[str, tuple[int, dict[str, Any] | None]] = {}
    for name, words in COMMANDS.items():
        run = snaprebuild(*words(place), *options, "--output", "json")
        found[name] = (run.exit_code, run.document if run.stdout else None)
    return found


@pytest.fixture(scope="module", params=["verified", "alone"])
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """Whether the metadata log is named, and the first line of each command about the healthy store."""
    place = tmp_path_factory.mktemp("healthy")
    write_store(place)
    options = ("--metadata-log", place / "metadata") if request.param == "verified" else ()
    lines = {}
    for name, (_, document) in answers(place, options).items():
        assert document is not None
        lines[name] = document["answer"].splitlines()[0]
    return request.param, lines


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_no_all_clear_where_another_verb_proves_a_fault(
    fault: StoreFault, healthy: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    mode, healthy_lines = healthy
    write_store(tmp_path)
    fault.change(tmp_path)
    options = ("--metadata-log", tmp_path / "metadata") if mode == "verified" else ()
    found = answers(tmp_path, options)
    expected = (VERIFIED if mode == "verified" else ALONE)[fault.name]
    assert {name: cell(*each) for name, each in found.items()} == dict(zip(COMMANDS, expected, strict=True))
    for name, (exit_code, document) in found.items():
        if document is None:
            continue
        counts = document["counts"]
        first = document["answer"].splitlines()[0]
        faults = {each: counts[each] for each in ("damaged", "wrong", "suspect", "missing", "unread") if counts[each]}
        assert not (faults and exit_code == 0), name
        if exit_code != 0:
            assert first != healthy_lines[name], "the first line shows why the exit code is not 0"
        assert counts["damaged"] in (0, fault.damaged), name
        assert counts["wrong"] in (0, fault.wrong), name
        for each, text in (("damaged", r"\d (copy|copies) damaged"), ("wrong", r"\d snapshots? wrong")):
            assert (re.search(text, first) is not None) == bool(counts[each]), (name, first)
        follow(document["next_command"], [str(word) for word in (*COMMANDS[name](tmp_path), *options)])


def follow(command: str | None, words: list[str]) -> None:
    """The next command is another one, and runs without a refusal."""
    if command is None:
        return
    following = shlex.split(command)[1:]
    assert following != words
    run = snaprebuild(*following)
    assert run.exit_code not in (2, 3), (following, run)


@pytest.mark.parametrize("fault", [each for each in FAULTS if each.wrong or each.damaged], ids=lambda fault: fault.name)
def test_one_copy_counts_once_for_all_replicas(fault: StoreFault, tmp_path: Path) -> None:
    """Two replicas on different disks start from the same copies."""
    write_store(tmp_path)
    fault.change(tmp_path)
    both = tmp_path / "both"
    for disk in ("a", "b"):
        shutil.copytree(tmp_path / "follower", both / disk)
    options = ("--metadata-log", tmp_path / "metadata")
    for verb, members, more in (("check", "replicas", (*AS_OF, *ONE_JOB)), ("plan", "partitions", ONE_JOB)):
        one = in_json("follower", verb, tmp_path / "remote", tmp_path / "follower", *options, *more).document
        two = in_json("follower", verb, tmp_path / "remote", both, *options, *more).document
        assert (len(one[members]), len(two[members])) == (1, 2)
        assert two["status"] == one["status"]
        for name in ("damaged", "wrong", "unread"):
            assert two["counts"][name] == one["counts"][name], (verb, name)
        assert one["counts"]["unread"] == 0, "a damaged copy was read"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_one_lost_copy_is_one_finding(fault: StoreFault, tmp_path: Path) -> None:
    """Where one finding counts the lost copies of a partition, no other is about one of them."""
    write_store(tmp_path)
    fault.change(tmp_path)
    place = (tmp_path / "remote", tmp_path / "follower", "--metadata-log", tmp_path / "metadata")
    for words in (("fetch-path", *place, "--offset", 60), ("plan", *place, *ONE_JOB)):
        codes = in_json("follower", *words).codes
        assert codes.get("tier-lost", 0) <= 1


@pytest.mark.parametrize("level", ["structure", "full"])
def test_a_copy_that_no_key_decrypts_has_one_finding(level: str) -> None:
    run = in_json("tier audit", ENCRYPTED, "--level", level, *LONG_AGO)
    assert run.codes["refused"] == 1
    assert "tier-not-audited" not in run.codes


def test_a_store_of_another_plugin_is_no_answer(tmp_path: Path) -> None:
    """Objects of no known layout alone are an error of each command, as an empty store is, and no "nothing to do"."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "readme").write_bytes(b"something else")
    for words in (("tier", "inventory"), ("tier", "audit"), ("tier", "repair", "--dry-run")):
        run = in_json(*words, tmp_path / "store")
        assert run.exit_code == 2
        assert "'readme'" in run.error


KEY1 = AIVEN / "keys" / "key1.private.pem"
KEYS = ("--set", f"private_key=key1={KEY1}")
ENCRYPTED = AIVEN / "encrypted" / "store"


def test_the_private_key_is_missing() -> None:
    """Each verb that needs it refuses, and the one that does not names it before the next command, which would be refused."""
    inventory = snaprebuild("tier", "inventory", ENCRYPTED)
    assert inventory.exit_code == 0
    assert next_words(inventory) == [AGAIN], "no command that would be refused"
    assert "--set private_key=key1=FILE" in next_line(inventory)
    for words in (("tier", "audit"), ("tier", "audit", "--level", "structure"), ("tier", "repair", "--dry-run")):
        run = snaprebuild(*words, ENCRYPTED, *LONG_AGO)
        assert run.exit_code == 3
        assert run.stdout.startswith("INCOMPLETE: ")
        assert next_words(run) == [AGAIN]
    given = snaprebuild("tier", "inventory", ENCRYPTED, "--set", f"private_key=key1={KEY1}")
    assert snaprebuild(*next_words(given)).exit_code == in_json("tier audit", ENCRYPTED, *LONG_AGO, *KEYS).exit_code


def uploaded(place: Path) -> Path:
    """A store in the plugin's layout, which `tier upload` has written."""
    write_store(place)
    store = place / "uploaded"
    store.mkdir()
    first = in_json("tier upload", store, place / "log", *UPLOADER, "me", *AS_OF)
    assert first.exit_code == 0
    return store


UPLOADER = ("--i-am-the-leader", "--allow-unverified", "--uploader")


@pytest.mark.parametrize(
    ("suffix", "data", "expected"),
    [
        ("", b"", ("0 healthy", "0 healthy", "0 healthy")),
        (".log", None, ("1 damaged", "1 damaged", FOUND)),
        (".rsm-manifest", None, ("1 damaged", "1 damaged", FOUND)),
        (".rsm-manifest", b"{", ("4 damaged", "4 damaged", FOUND)),
    ],
    ids=["healthy", "a segment is missing", "a manifest is missing", "a manifest is torn"],
)
def test_an_upload_next_to_a_damaged_copy(suffix: str, data: bytes | None, expected: tuple[str, str, str], tmp_path: Path) -> None:
    """Another uploader finds what the inventory and the audit find, and no "finished before"."""
    store = uploaded(tmp_path)
    if suffix:
        path = min(store.rglob(f"*{suffix}"))
        path.unlink() if data is None else path.write_bytes(data)
    runs = [
        in_json("tier inventory", store),
        in_json("tier audit", store, *AS_OF),
        in_json("tier upload", store, tmp_path / "log", *UPLOADER, "other", *AS_OF, "--dry-run"),
    ]
    assert tuple(cell(run.exit_code, run.document) for run in runs) == expected, runs[2].document["answer"]
