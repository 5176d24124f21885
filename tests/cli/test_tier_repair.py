"""``tier repair`` as a user runs it: what is wrong becomes right as an independent reader sees it, and nothing else changes."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from aiven_index_reader import INDEXES, entries_sha256, fetch_index, reported
from budgets import first_of
from command import Run, in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, tree
from manifests import AIVEN, FIXTURES, LONG_AGO, READS, REPOSITORY
from metadata_logs import metadata_log
from schema_validator import Draft202012Validator
from sentences import ARE_IN_NO_COPY
from tiers import copied

PEM = AIVEN / "keys" / "key1.private.pem"
KEY = ("--set", f"private_key={PEM}")

DISEASED = ("diseased", "diseased-zstd", "diseased-encrypted")
GOLDEN = dict(zip(INDEXES, ("offset", "timestamp", "producer_snapshot", "leader_epoch", "transaction"), strict=True))


def store_of(name: str, to: Path) -> Path:
    return Path(shutil.copytree(AIVEN / READS["variants"][name]["store"], to / "store"))


@pytest.fixture
def diseased(tmp_path: Path) -> Path:
    return store_of("diseased", tmp_path)


def repair(store: object, *arguments: object, undo: Path | None = None) -> Run:
    more = () if undo is None else ("--receipt", undo)
    return in_json("tier repair", store, *LONG_AGO, "--allow-unverified", *more, *arguments)


def audit(store: object, *arguments: object) -> dict[str, str]:
    document = in_json("tier audit", store, *LONG_AGO, *arguments).document
    return {copy["segment_id"]: copy["verdict"] for partition in document["partitions"] for copy in partition["copies"]}


def actions(run: Run) -> dict[int, str]:
    return {copy["start_offset"]: copy["action"] for copy in run.document["copies"]}


def totals(run: Run) -> dict[str, int]:
    return {action: number for action, number in run.document["totals"].items() if number}


def check_reads(name: str, get: Any, *, is_repaired: bool = True) -> None:
    """Every index of every copy as the plugin reads it: those that were sound as it read them before, snapshots as Kafka has them."""
    for segment in READS["variants"][name]["segments"]:
        for index in INDEXES:
            found = fetch_index(get, segment["key"], index, PEM.read_bytes())
            if index == "producerSnapshot" and is_repaired and segment["disease"] is not None:
                assert found is not None
                assert entries_sha256(found) == segment["right_snapshot"]["entries_sha256"]
                assert len(found) == segment["right_snapshot"]["size"]
            elif found is None:
                assert segment["golden"][GOLDEN[index]]["error"] == "RemoteResourceNotFoundException"
            else:
                assert reported(found) == segment["golden"][GOLDEN[index]]


# ---------------------------------------------------------------------------------------------------------------- repaired


@pytest.mark.parametrize("name", first_of(DISEASED))
def test_what_is_wrong_becomes_right(name: str, tmp_path: Path) -> None:
    store, undo = store_of(name, tmp_path), tmp_path / "undo.jsonl"
    key = KEY if "encrypted" in name else ()
    wrong = [segment["key"] for segment in READS["variants"][name]["segments"] if segment["disease"] is not None]
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    run = repair(store, *key, undo=undo)
    assert (run.exit_code, totals(run)) == (0, {"repaired": len(wrong)})
    assert {each["manifest_key"] for each in run.document["copies"]} == {f"{each}.rsm-manifest" for each in wrong}
    assert {each["class"] for each in run.document["copies"]} == {"EXACT"}
    assert run.document["receipt"] == str(undo)
    check_reads(name, lambda path: (store / path).read_bytes())
    assert set(audit(store, *key).values()) == {"right"}
    changed = {path for path, data in before.items() if path.read_bytes() != data}
    assert changed == {store / f"{each}.{suffix}" for each in wrong for suffix in ("indexes", "rsm-manifest")}
    assert {path for path in store.rglob("*") if path.is_file()} == before.keys()
    for each in wrong:
        self_describing(store / each, before)
    again = repair(store, *key, undo=tmp_path / "again.jsonl")
    assert (again.exit_code, again.document["copies"], again.document["receipt"]) == (0, [], None)
    assert not (tmp_path / "again.jsonl").exists()


def self_describing(stem: Path, before: dict[Path, bytes]) -> None:
    """The old bytes are unchanged in front, and of the manifest only the place of the snapshot is another one."""
    indexes, manifest = (stem.parent / f"{stem.name}.{suffix}" for suffix in ("indexes", "rsm-manifest"))
    old, new = json.loads(before[manifest]), json.loads(manifest.read_bytes())
    place = new["segmentIndexes"]["producerSnapshot"]
    assert indexes.read_bytes()[: place["position"]] == before[indexes]
    assert place == {"position": len(before[indexes]), "size": len(indexes.read_bytes()) - len(before[indexes])}
    text = json.dumps(old["segmentIndexes"]["producerSnapshot"], separators=(",", ":"))
    written = f'"producerSnapshot":{json.dumps(place, separators=(",", ":"))}'
    assert manifest.read_text() == before[manifest].decode().replace(f'"producerSnapshot":{text}', written)


@pytest.mark.parametrize("name", ["plain", "zstd-heuristic"])
def test_what_is_right_stays(name: str, tmp_path: Path) -> None:
    store = store_of(name, tmp_path)
    before = tree(store)
    run = repair(store, undo=tmp_path / "undo.jsonl")
    # Two of these segments are not next to each other.
    assert (run.exit_code, run.document["copies"], set(run.codes) - {"tier-gap"}) == (1, [], {"tier-unproven"})
    assert tree(store) == before
    assert not (tmp_path / "undo.jsonl").exists()


def test_a_dry_run_shows_the_same(diseased: Path, tmp_path: Path) -> None:
    before = tree(diseased)
    dry = repair(diseased, "--dry-run")
    assert (dry.exit_code, totals(dry)) == (0, {"would-repair": 4})
    assert tree(diseased) == before
    done = repair(diseased, undo=tmp_path / "undo.jsonl")
    assert [{**copy, "action": "repaired"} for copy in dry.document["copies"]] == done.document["copies"]


def test_unknown_keys_of_the_broker_stay(diseased: Path, tmp_path: Path) -> None:
    (path,) = diseased.rglob("*00687-*.rsm-manifest")
    path.write_text(
        path.read_text().replace('"remoteLogSegmentMetadata":{', '"remoteLogSegmentMetadata":{"later":{"ü":[1.50,2e3]},', 1)
    )
    run = repair(diseased, undo=tmp_path / "undo.jsonl")
    # Numbers that would come out in another form: the manifest would change in more than one place.
    assert actions(run)[687] == "refused"
    path.write_text(path.read_text().replace("[1.50,2e3]", "[1.5,2000]"))
    run = repair(diseased, undo=tmp_path / "again.jsonl")
    assert (run.exit_code, actions(run)) == (0, {687: "repaired"})
    assert '"later":{"ü":[1.5,2000]}' in path.read_text()


# ---------------------------------------------------------------------------------------------------------------- taken back


def test_undo_puts_the_manifests_back(diseased: Path, tmp_path: Path) -> None:
    undo = tmp_path / "undo.jsonl"
    before = {path: path.read_bytes() for path in diseased.rglob("*.rsm-manifest")}
    verdicts = audit(diseased)
    repair(diseased, undo=undo)
    lines = [json.loads(line) for line in undo.read_text().splitlines()]
    schema = json.loads((REPOSITORY / "docs" / "schema" / "tier-undo.schema.json").read_text())
    for line in lines:
        assert not list(Draft202012Validator(schema).iter_errors(line)), line
    assert [line.get("step") for line in lines] == [None, *["repair", "repaired"] * 4, "end"]
    for line in lines[1:-1:2]:
        assert base64.b64decode(line["manifest"]["base64"]) == before[diseased / line["manifest"]["key"]]
    repaired = tree(diseased)
    dry = in_json("undo", undo, "--dry-run")
    assert (dry.exit_code, totals(dry), tree(diseased)) == (0, {"would-restore": 4}, repaired)
    run = in_json("undo", undo)
    assert (run.exit_code, totals(run)) == (0, {"restored": 4})
    assert {path: path.read_bytes() for path in before} == before
    assert audit(diseased) == verdicts
    check_reads("diseased", lambda path: (diseased / path).read_bytes(), is_repaired=False)
    assert totals(in_json("undo", undo)) == {"absent": 4}
    # What was appended is taken again.
    again = repair(diseased, undo=tmp_path / "again.jsonl")
    assert (totals(again), {copy["appended_bytes"] for copy in again.document["copies"]}) == ({"repaired": 4}, {0})
    # It has written the same bytes, and only its own receipt takes them back.
    repaired_again = tree(diseased)
    left = in_json("undo", undo)
    assert (left.exit_code, totals(left), tree(diseased)) == (1, {"left": 4}, repaired_again)
    assert set(audit(diseased).values()) == {"right"}


def test_undo_leaves_what_is_not_its_own(diseased: Path, tmp_path: Path) -> None:
    undo = tmp_path / "undo.jsonl"
    repair(diseased, undo=undo)
    changed, gone = (next(diseased.rglob(f"*{offset}-*.rsm-manifest")) for offset in ("00687", "01231"))
    changed.write_text(changed.read_text() + " ")
    gone.unlink()
    text = undo.read_bytes()
    undo.write_bytes(text[: text.rindex(b'{"step":"end"') + 5])  # as a killed run leaves it
    run = in_json("undo", undo)
    assert (run.exit_code, actions(run)) == (1, {687: "left", 1231: "absent", 1805: "restored", 2430: "restored"})
    assert run.codes == {"left-alone": 1}


def repair_line(above: str = "", start_offset: str = "0") -> str:
    """A receipt with one repair; ``above`` goes before the key of its manifest."""
    known, uuid = '"size_bytes":1,"modified_ns":0,"mark":"x"', "A" * 22
    return (
        '{"schema":"snaprebuild.tier-undo/3","location":"STORE"}\n'
        f'{{"step":"repair","number":0,"topic":"t","topic_id":"{uuid}","partition":0,"segment_id":"{uuid}","start_offset":{start_offset},'
        f'"manifest":{{"key":"{above}t-{uuid}/0/{0:020d}-{uuid}.rsm-manifest",{known},"base64":"QUJD","new_sha256":"{"0" * 64}"}},'
        f'"indexes":{{"key":"",{known},"appended_bytes":0}}}}\n'
    )


NO_STEP = "line 2: is not a line of a receipt of tier repair"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "is an empty file, not a receipt"),
        (
            '{"schema":"snaprebuild.tier-undo/1","store":"STORE"}\n',
            "expected snaprebuild.tier-undo/3, found 'snaprebuild.tier-undo/1'",
        ),
        ('{"schema":"snaprebuild.receipt/2"}\n', "expected snaprebuild.receipt/3, found 'snaprebuild.receipt/2'"),
        ('{"schema":"snaprebuild.tier-undo/3","location":"/elsewhere"}\n', "does not exist"),
        (
            '{"schema":"snaprebuild.tier-undo/3","location":"STORE"}\n{"step":"repair"}\n',
            NO_STEP,
        ),
        (repair_line(start_offset="1e999"), NO_STEP),
        *((repair_line(above=above), NO_STEP) for above in ("\\u0000", "\\ud800", "../")),
        (repair_line().replace(':"QUJD"', ':"?"'), NO_STEP),
    ],
)
def test_what_is_no_undo_file(diseased: Path, tmp_path: Path, text: str, reported: str) -> None:
    (tmp_path / "undo.jsonl").write_text(text.replace("STORE", str(diseased)))
    run = snaprebuild("undo", tmp_path / "undo.jsonl")
    assert run.exit_code == 2
    assert reported in run.stderr


# ---------------------------------------------------------------------------------------------------------------- left alone


def test_without_a_metadata_log_nothing_is_written(diseased: Path, tmp_path: Path) -> None:
    before = tree(diseased)
    run = in_json("tier repair", diseased, *LONG_AGO, "--receipt", tmp_path / "undo.jsonl")
    assert (run.exit_code, run.codes, totals(run)) == (3, {"refused": 1}, {"not-repaired": 4})
    assert "--allow-unverified" in run.messages("refused")
    assert tree(diseased) == before
    assert not (tmp_path / "undo.jsonl").exists()


def test_the_metadata_log_shows_what_is_repaired(diseased: Path, tmp_path: Path) -> None:
    """A copy that it does not know is no part of the log; above the gap nothing is proven."""
    segments = READS["variants"]["diseased"]["segments"]
    log = metadata_log(tmp_path / "logs", [each for each in segments if each["metadata"]["start_offset"] != 1805])
    run = in_json("tier repair", diseased, *LONG_AGO, "--metadata-log", log, "--receipt", tmp_path / "undo.jsonl")
    assert {start for start, action in actions(run).items() if action == "repaired"} == {687, 1231}
    assert f"offsets 1805 to 2429 {ARE_IN_NO_COPY}" in run.messages("tier-not-repaired")
    verdicts = audit(diseased)
    by_start = {each["metadata"]["start_offset"]: verdicts[each["metadata"]["segment_id"]] for each in segments}
    assert (by_start[687], by_start[1231], by_start[1805], by_start[2430]) == ("right", "right", "missing-producers", "wrong")
    whole = metadata_log(tmp_path / "whole", segments)
    run = in_json("tier repair", diseased, *LONG_AGO, "--metadata-log", whole, "--receipt", tmp_path / "more.jsonl")
    assert (run.exit_code, actions(run)) == (0, dict.fromkeys((1805, 2430), "repaired"))
    check_reads("diseased", lambda path: (diseased / path).read_bytes())


def test_behind_damage_nothing_is_repaired(diseased: Path, tmp_path: Path) -> None:
    (path,) = diseased.rglob("*01231-*.log")
    data = bytearray(path.read_bytes())
    data[30_000] ^= 1
    path.write_bytes(data)
    run = repair(diseased, undo=tmp_path / "undo.jsonl")
    assert run.exit_code == 4
    assert {start: action for start, action in actions(run).items() if action != "not-repaired"} == {687: "repaired"}
    assert run.codes["bad-checksum"] == 1
    (left,) = [copy for copy in run.document["copies"] if copy["start_offset"] == 1231]
    assert "is damaged, or could not be read" in left["reason"]


def test_copies_that_share_offsets_are_left_alone(diseased: Path, tmp_path: Path) -> None:
    """Without a metadata log nothing shows which of them the log continues with."""
    for path in sorted(diseased.rglob("*01231-*")):
        copied(path, "Z")
    before = {path: path.read_bytes() for path in diseased.rglob("*") if path.is_file()}
    run = repair(diseased, undo=tmp_path / "undo.jsonl")
    assert run.exit_code == 1
    assert {start for start, action in actions(run).items() if action == "repaired"} == {687}
    assert run.codes["tier-not-repaired"] == len(run.document["copies"]) - 1
    assert "from offset 1231 on copies share offsets" in run.messages("tier-not-repaired")
    assert {path.name[15:20] for path, data in before.items() if path.read_bytes() != data} == {"00687"}


def test_a_store_that_begins_above_zero(diseased: Path, tmp_path: Path) -> None:
    """No segment has what producers did below the first copy, so that no replay gives the whole state."""
    for path in list(diseased.rglob("*00000-*")):
        path.unlink()
    before = tree(diseased)
    run = repair(diseased, undo=tmp_path / "undo.jsonl")
    found = {copy["start_offset"]: (copy["verdict"], copy["action"], copy["class"]) for copy in run.document["copies"]}
    assert found[687] == ("false-empty", "not-repaired", None)
    assert {each[1:] for each in found.values()} == {("not-repaired", None)}
    assert run.exit_code == 1
    assert "the right content is not proven: the copies do not begin at offset 0" in run.messages("tier-not-repaired")
    assert tree(diseased) == before


def test_local_tiered_storage_is_refused(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "remote")
    path = min(tmp_path.rglob("*.snapshot"))
    path.write_bytes(EMPTY_SNAPSHOT)
    before = tree(tmp_path / "remote")
    logs = ("--metadata-log", FIXTURES / "tiered-local" / "logs")
    run = in_json("tier repair", tmp_path / "remote", *LONG_AGO, *logs, "--receipt", tmp_path / "undo.jsonl")
    assert (run.exit_code, totals(run)) == (3, {"not-repaired": 1})
    assert "LocalTieredStorage keeps a snapshot in a file of its own" in run.messages("refused")
    assert tree(tmp_path / "remote") == before


def test_as_a_table(diseased: Path, tmp_path: Path) -> None:
    run = snaprebuild("tier", "repair", diseased, *LONG_AGO, "--allow-unverified", "--receipt", tmp_path / "undo.jsonl")
    lines = [" ".join(line.split()) for line in run.stdout.splitlines()]
    assert "mixed-0 687 false-empty repaired 10 B at 412 884 B at 498 -" in lines
    assert lines[0] == "4 wrong snapshots: 4 repaired."
    assert "fetch.manifest.cache.retention.ms (3600000 by default)" in run.text
    assert "is not repaired by this" in run.text
    run = snaprebuild("undo", tmp_path / "undo.jsonl")
    assert "4 repairs: 4 restored" in run.stdout
    assert "stays after the indexes" in run.text


# ---------------------------------------------------------------------------------------------------------------- an object store


def test_no_all_clear_where_copies_were_not_read(tmp_path: Path) -> None:
    store = Path(shutil.copytree(AIVEN / "plain" / "store", tmp_path / "store"))
    for path in list(store.rglob("*.indexes")):
        path.unlink()
    run = snaprebuild("tier", "repair", store, *LONG_AGO, "--allow-unverified", "--dry-run")
    first = run.stdout.splitlines()[0]
    count = len(list(store.rglob("*.log")))
    assert first.startswith(f"{count} copies damaged")
    assert run.exit_code == 1


def test_an_indexes_object_that_is_too_short(diseased: Path, tmp_path: Path) -> None:
    (path,) = diseased.rglob("*01805-*.indexes")
    path.write_bytes(path.read_bytes()[:100])
    run = repair(diseased, undo=tmp_path / "undo.jsonl")
    assert actions(run)[1805] == "refused"
    assert "has 100 bytes, and its manifest names 1864" in run.messages("refused")
    assert path.stat().st_size == 100
