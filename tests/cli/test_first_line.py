"""The first line of `scan` and `verify`: at most 100 columns in every state, with every count that is not zero."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from budgets import scaled
from command import in_json, snaprebuild
from hypothesis import given, settings
from hypothesis import strategies as st
from log_dirs import copy_of, snapshot_name
from manifests import FIXTURES
from sentences import NOT_READY, RAISE_THE_PROTOCOL, RECORDS_REMOVED, STRAY_WITHOUT_ID
from stopped_broker import made

from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.status import FateGroup, Status, StatusWord, status_of
from snaprebuild.cli.render.status import LINE_MAX, answer_lines, fate_sentence, snapshot_counts, status_details, status_line
from snaprebuild.findings import Finding, Severity, pluralize

COUNT = st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 2**63 - 1))
NAME = st.one_of(
    st.just("orders-0"),
    st.integers(1, 249).map(lambda size: f"{'t' * size}-1999"),
    st.just(f"{'very.long.topic.' * 15}-2147483647"),
)
RELEASES = st.sampled_from((None, "3.7.0", "3.3.0 to 3.6.2", "3.7.1 to 4.4.0"))
CAUSES = st.sampled_from(("no topic id", "partition.metadata is empty or cut", "its topic id is not in the image", "c" * 120))


@st.composite
def fates(draw: st.DrawFn) -> Fate:
    name = draw(NAME)
    is_log_dir = draw(st.booleans())
    path = f"/var/lib/kafka/{'d' * draw(st.integers(1, 150))}"
    return Fate(
        kind=draw(st.sampled_from(FateKind)),
        code="any",
        subject=path if is_log_dir else name,
        path=path if is_log_dir else f"{path}/{name}",
        cause=draw(CAUSES),
        detail=draw(st.sampled_from(("", "backup", "d" * 90))),
        evidence="",
        releases=draw(RELEASES),
        log_line="",
        remedy="",
        removed_snapshots=draw(COUNT),
        size_bytes=draw(COUNT),
        log_end_offset=draw(COUNT),
        reached_offset=draw(COUNT),
        leader_epoch=draw(st.one_of(st.none(), st.integers(0, 2**31 - 1))),
    )


@st.composite
def statuses(draw: st.DrawFn) -> Status:
    return status_of(
        draw(st.lists(fates(), max_size=12)),
        wrong=draw(COUNT),
        suspect=draw(COUNT),
        missing=draw(COUNT),
        waiting=draw(COUNT),
        waiting_unknown=draw(COUNT),
        unread=0,
        topics_without_id=draw(st.sampled_from(((), ("orders",), tuple(f"t{number}" for number in range(3000))))),
    )


UNREAD = Finding("storage-failed", Severity.STORAGE, "/d/orders-1", "cannot be read", is_unread=True)
DELETED = Finding("gone-meanwhile", Severity.NOTE, "/d/orders-2", "was deleted", is_deleted=True)

WORDS = {
    "wrong": r"wrong",
    "suspect": r"suspect",
    "missing": r"missing",
    "waiting": r"waiting",
    "unknown": r"unread|could not be read",
    "deleted": r"deleted",
}
"""Patterns which show that a line has a count."""


@settings(max_examples=scaled(300))
@given(
    statuses(),
    st.lists(st.sampled_from((UNREAD, DELETED)), unique=True),
    st.integers(1, 10**7),
    st.lists(st.text(alphabet="abc ", min_size=1, max_size=120), max_size=3),
)
def test_every_first_line(status: Status, findings: list[Finding], partitions: int, extra: list[str]) -> None:
    heads = snapshot_counts(status, partitions, partitions, is_incomplete=UNREAD in findings)
    answer = answer_lines(status, findings, heads, [f"{text}." for text in extra], "1.1 MiB cannot be uploaded.")
    line = answer.splitlines()[0]
    assert len(line) <= LINE_MAX, line
    assert answer.count("INCOMPLETE") <= 1, "once for one answer"
    assert "at least 0" not in answer
    counts = {
        "wrong": status.wrong,
        "suspect": status.suspect,
        "missing": status.missing,
        "waiting": status.waiting + status.waiting_unknown,
        "unknown": UNREAD in findings,
        "deleted": DELETED in findings,
    }
    for name, count in counts.items():
        if count:
            # Segments wait in normal life: next to a fate their number may give way to a name.
            gives_way = name == "waiting" and (status.concerns or status.topics_without_id)
            assert re.search(WORDS[name], answer if gives_way else line), (name, answer)
    if len(status.concerns) > 1:
        assert re.search(r"fate", line), line


def test_the_number_of_waiting_segments_gives_way_to_every_other_count() -> None:
    fates = [
        Fate(
            kind=FateKind.FAILS_ONCE,
            code="any",
            subject=f"{'t' * 200}-{number}",
            path=f"/logs/{'t' * 200}-{number}",
            cause=f"cause {number}",
            detail="",
            evidence="",
            releases=None,
            log_line="",
            remedy="",
        )
        for number in range(100)
    ]
    counts = {"wrong": 999 * 10**3, "suspect": 999 * 10**3, "missing": 999 * 10**3, "waiting": 999 * 10**3}
    status = status_of(fates, **counts, unread=1, waiting_unknown=10**8, topics_without_id=["t"] * 3000)
    line = answer_lines(status, [UNREAD, DELETED], [""], [])
    first, _, rest = line.partition("\n")
    assert len(first) <= LINE_MAX
    assert [word for word in WORDS.values() if re.search(word, first)] == [
        "wrong",
        "suspect",
        "missing",
        "unread|could not be read",
        "deleted",
    ]
    assert re.search("waiting", rest)


@settings(max_examples=scaled(200))
@given(statuses())
def test_a_line_that_is_shortened_is_whole_below(status: Status) -> None:
    line, below = status_line(status), status_details(status)
    if line is None:
        assert not below
        return
    # Advice alone repeats nothing: the first line then has every count in full.
    whole = f"{line} {below}" if below == RAISE_THE_PROTOCOL else below or line
    if status.concerns and status.concerns[0].first.kind is not FateKind.NO_START:
        assert "…" not in whole
    if status.waiting_unknown:
        at_least = f"{status.waiting} to" if status.waiting else "up to"
        assert f"{at_least} {pluralize(status.waiting + status.waiting_unknown, 'segment')} waiting" in whole
    order = [whole.rfind(word) for count, word in ((status.wrong, "wrong"), (status.suspect, "suspect")) if count]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("waiting", "first", "below"),
    [
        (0, "Also: 17 snapshots missing.", RAISE_THE_PROTOCOL),
        (4, "Also: 17 missing, 2-6 waiting.", f"{RAISE_THE_PROTOCOL} 17 snapshots missing, 2 to 6 segments waiting."),
    ],
)
def test_topics_without_an_id_are_said_once(waiting: int, first: str, below: str) -> None:
    status = status_of(
        [], wrong=0, suspect=0, missing=17, waiting=2 if waiting else 0, unread=0, waiting_unknown=waiting,
        topics_without_id=["a", "b"],
    )  # fmt: skip
    assert status_line(status) == f"{NOT_READY}2 topics have no id. {first}"
    assert status_details(status) == below


def test_a_long_name_is_cut_in_its_middle() -> None:
    fate = Fate(
        kind=FateKind.STRAY, code="no-topic-id", subject=f"{'topic.' * 30}-1234", path="/d", cause="no topic id",
        evidence="", log_line="", remedy="",
    )  # fmt: skip
    line = status_line(status_of([fate], wrong=0, suspect=0, missing=3, waiting=0, unread=0))
    assert line is not None
    assert re.fullmatch(rf"The start sets topic\..*….*-1234 {STRAY_WITHOUT_ID}\. Also: 3 snapshots missing\.", line)
    assert len(line) == LINE_MAX


def fate_of(kind: FateKind, subject: str, **of_fate: Any) -> Fate:
    texts = {"code": "any", "path": f"/d/{subject}", "cause": "a cause", "evidence": "", "log_line": "", "remedy": ""}
    return Fate(kind=kind, subject=subject, **{**texts, **of_fate})


def test_waiting_segments_give_way_to_a_name() -> None:
    """Every broker with tiered storage has some: without this the line says only that some log lost its end."""
    status = status_of(
        [fate_of(FateKind.END_LOST, "orders-17", log_end_offset=70451, reached_offset=82311)] * 3,
        wrong=3, suspect=0, missing=9, waiting=1234, unread=0, waiting_unknown=51234,
    )  # fmt: skip
    expected = "orders-17 lost its end: 70451, its checkpoints say 82311; so did 2 others. Also: 3 wrong, 9 missing."
    assert status_line(status) == expected
    assert "1234 to 52468 segments waiting" in status_details(status)


@pytest.mark.parametrize(
    ("kind", "several", "one"),
    [
        (FateKind.RECORDS_CUT, f"{RECORDS_REMOVED}5 to 6 of o-0, and others of 2 partitions, which were acknowledged.",
         f"{RECORDS_REMOVED}5 to 6 of o-0, which were acknowledged."),
        (FateKind.END_LOST, "o-0 lost its end: 5, its checkpoints say 7; so did 2 others.",
         "o-0 lost its end: 5, its checkpoints say 7."),
        (FateKind.CATCHES_UP, "o-0 ends 2 below its high watermark, and 2 others below theirs; they catch up from a replica in sync.",
         "o-0 ends 2 below its high watermark; it catches up from a replica in sync."),
        (FateKind.EMPTIED, "The start deletes o-0: it ends at 5, below its log start 7, and 2 others for the same.",
         "The start deletes o-0: it ends at 5, below its log start 7."),
        (FateKind.LEADING_DELETES_REMOTE,
         "Do not let these replicas of o-0 and 2 others lead: Kafka would delete their remote segments.",
         "Do not let this replica of o-0 lead: Kafka would delete remote epochs below 4."),
        (FateKind.LEADER_EPOCHS_CUT, "Do not let these replicas of o-0 and 2 others lead: their last leader epochs are gone.",
         "Do not let this replica of o-0 lead: its leader epochs above 4 are gone."),
    ],
)  # fmt: skip
def test_offsets_belong_to_one_partition(kind: FateKind, several: str, one: str) -> None:
    fates = [fate_of(kind, f"o-{at}", log_end_offset=5 + at, reached_offset=7 + at, leader_epoch=4 + at) for at in range(3)]
    assert [fate_sentence(FateGroup(tuple(fates))), fate_sentence(FateGroup((fates[0],)))] == [several, one]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", [kind for kind in FateKind if kind.severity is not Severity.NOTE])
def test_a_brief_sentence_counts_its_logs(kind: FateKind, count: int) -> None:
    many = 999_999_999
    status = status_of(
        [fate_of(kind, f"{'t' * 240}-{at}", cause="c" * 120, log_end_offset=2**62, reached_offset=2**63 - 1, removed_snapshots=2**62)
         for at in range(count)],
        wrong=many, suspect=many, missing=many, waiting=0, unread=0,
    )  # fmt: skip
    line = status_line(status)
    assert line is not None
    if re.search(r"\b(logs?|replicas?)\b", line) and "…" not in line:
        assert re.search(rf"\b{count} (logs|replicas)\b", line) if count > 1 else re.search(r"\b[aA] (log|replica)\b", line), line


def test_harmless_and_damaging_fates_are_apart(tmp_path: Path) -> None:
    """Nothing of a metadata log is uploaded: what its start removes is a note, also next to a topic that loses snapshots."""
    logs = copy_of("tiered-local", tmp_path)
    for partition in ("mixed-0", "__remote_log_metadata-0"):
        sorted((logs / partition).glob("*.index"))[0].unlink()
    run = in_json("scan", logs)
    found = {
        finding["path"]: finding["severity"] for finding in run.document["findings"] if finding["code"] == "index-rebuilt-at-start"
    }
    assert found == {str(logs / "mixed-0"): "finding", str(logs / "__remote_log_metadata-0"): "note"}
    first = snaprebuild("scan", logs).stdout.splitlines()[0]
    assert first.startswith("The next start rebuilds an index of mixed-0 and removes "), first


def test_one_count_of_waiting_segments(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7350)).unlink()
    document = in_json("scan", logs).document
    text = snaprebuild("scan", logs).stdout
    waiting = document["counts"]["waiting"]
    assert sum(each["upload"]["waiting_segments"] for each in document["partitions"]) == waiting == 3
    assert "3 segments waiting" in text.splitlines()[0]
    assert "Waiting, not blocked: 3 rolled segments" in text


def test_nothing_waits_for_an_upload_that_is_off() -> None:
    document = in_json("scan", FIXTURES / "kraft-cluster3" / "node1").document
    assert {each["remote_storage"] for each in document["topics"]} == {"off"}
    assert (document["status"], document["counts"]["waiting"], document["counts"]["waiting_unknown"]) == ("healthy", 0, 0)
    assert not any(each["upload"]["waiting_segments"] for each in document["partitions"])
    assert "aiting" not in snaprebuild("scan", FIXTURES / "kraft-cluster3" / "node1").stdout


@pytest.mark.parametrize("verb", ["scan", "verify"])
def test_waiting_segments_are_unknown_without_a_last_stable_offset(verb: str, tmp_path: Path) -> None:
    """The broker was killed, and the high watermark is below every snapshot."""
    directory = made(tmp_path)
    (directory.parent / ".kafka_cleanshutdown").unlink()
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    first = snaprebuild(verb, directory.parent).stdout.splitlines()[0].lower()
    assert "up to 2 segments waiting" in first
    document = in_json(verb, directory.parent).document
    assert (document["counts"]["waiting"], document["counts"]["waiting_unknown"]) == (0, 2)
    assert document["status"] == StatusWord.WAITING.value
    if verb == "scan":
        assert document["partitions"][0]["upload"]["waiting_unknown_segments"] == 2


@pytest.mark.parametrize("verb", ["scan", "verify"])
def test_all_counts_of_one_directory(verb: str, tmp_path: Path) -> None:
    """A stray, a missing and a corrupt snapshot, and segments above an unknown last stable offset."""
    directory = made(tmp_path)
    for number in (1, 2, 3):
        shutil.copytree(directory, directory.parent / f"orders-{number}")
    (directory / "partition.metadata").unlink()
    (directory.parent / "orders-1" / snapshot_name(10)).unlink()
    (directory.parent / "orders-2" / snapshot_name(10)).write_bytes(b"torn")
    lines = snaprebuild(verb, directory.parent, "--kafka-release", "4.3.1").stdout.splitlines()
    assert lines[0].startswith(f"The start sets orders-0 {STRAY_WITHOUT_ID}. Also: 1 wrong, 1 snapshot missing")
    assert len(lines[0]) <= LINE_MAX
