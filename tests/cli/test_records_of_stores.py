"""``inspect records`` with a STORE: alone, and below the log on disk. The whole log on disk, and the library, are the reference."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command import in_json, snaprebuild
from documents import check
from faulty_store import FaultyStore
from log_dirs import files_below
from manifests import FIXTURES

from snaprebuild.cli.render.records import RecordsView
from snaprebuild.cli.runs import engine_choice
from snaprebuild.errors import WriteFailedError
from snaprebuild.library.record_stream import records

TIERED = FIXTURES / "tiered-local"
STORE = TIERED / "remote"
LOGS = TIERED / "logs"
AIVEN = FIXTURES / "aiven-layout"
KEY = AIVEN / "keys" / "key1.private.pem"
MANY = ("--limit", 1_000_000)
FIRST_ON_DISK = 3664


def shown(*arguments: object) -> dict[str, Any]:
    run = in_json("inspect records", *arguments)
    assert run.exit_code in (0, 1), run.stderr
    return run.document


def offsets(document: dict[str, Any]) -> list[int]:
    return [each["offset"] for each in document["shown_records"]]


@pytest.fixture
def cut_logs(tmp_path: Path) -> Path:
    """The log directory without the segments that remote storage has."""
    logs = Path(shutil.copytree(LOGS, tmp_path / "logs"))
    for path in (logs / "mixed-0").iterdir():
        if path.stem.isdecimal() and int(path.stem) < FIRST_ON_DISK:
            path.unlink()
    return logs


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "all"])
def test_a_store_below_the_log_on_disk_makes_the_log_whole(isolation: str, cut_logs: Path) -> None:
    both = shown(STORE, cut_logs, "--metadata-log", cut_logs, "--isolation", isolation, "--topic", "mixed", *MANY)
    whole = shown(LOGS, "--isolation", isolation, "--topic", "mixed", *MANY)
    assert both["shown_records"] == whole["shown_records"]
    assert [each["missing_offsets"] for each in both["partitions"]] == [0]


def test_a_store_alone_is_read_to_its_end() -> None:
    document = shown(STORE, "--isolation", "all", *MANY)
    assert offsets(document) == list(range(json.loads((TIERED / "manifest.json").read_text())["highest_remote_offset"] + 1))


@pytest.mark.parametrize("name", ["encrypted", "encrypted-zstd", "zstd-one-chunk"])
def test_copies_of_the_plugin(name: str) -> None:
    store = AIVEN / name / "store"
    document = shown(store, "--set", f"private_key={KEY}", "--isolation", "read_uncommitted", *MANY)
    stream = records(remote=store, private_key=str(KEY), isolation="read_uncommitted", columns=("offset",), fail_on_data_loss=False)
    assert offsets(document) == stream.reader().read_all()["offset"].to_pylist()


def test_a_prefix_of_keys_names_a_store(tmp_path: Path) -> None:
    """The key prefix is the last part of the location, or a setting."""
    store = AIVEN / "zstd-one-chunk" / "store"
    for path in (store / "tier").iterdir():
        shutil.copytree(path, tmp_path / f"pre-{path.name}")
    expected = offsets(shown(store, *MANY))
    assert offsets(shown(tmp_path / "pre-", *MANY)) == expected
    assert offsets(shown(tmp_path, "--set", "key_prefix=pre-", *MANY)) == expected


def test_one_of_several_topics_of_a_name() -> None:
    """The plugin copied the topic of this id from the log."""
    store = AIVEN / "plain" / "store"
    logs = FIXTURES / "kafka4-mixed" / "logs"
    refused = snaprebuild("inspect records", store, "--topic", "logappend")
    assert (refused.exit_code, "has copies of several topics called logappend" in refused.stderr) == (2, True)
    topic = ("--topic", "logappend", "--isolation", "all", "--key-format", "hex", "--value-format", "hex", *MANY)
    alone = shown(store, "--topic-id", "logappend=pUdI2_H3STObO0yyg8HJBA", *topic)["shown_records"]
    whole = {each["offset"]: each for each in shown(logs, *topic)["shown_records"]}
    assert alone == [whole[each["offset"]] for each in alone] != []


def test_an_export_of_a_store(tmp_path: Path) -> None:
    document = shown(STORE, "--isolation", "all", "--out", tmp_path / "export")
    check(document)
    (partition,) = document["partitions"]
    table = pq.read_table(tmp_path / "export" / partition["file"]["path"])
    assert table["offset"].to_pylist() == offsets(shown(STORE, "--isolation", "all", *MANY))


# --- which place is which --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ((LOGS, STORE), "is remote storage: name one STORE, before PATH"),
        ((STORE, STORE), "is remote storage: name one STORE, before PATH"),
        ((LOGS, "--metadata-log", LOGS), "is a log directory: name STORE"),
        ((LOGS, "--topic-id", "mixed=ArVkN0FsREySYiqNvr4hUw"), "is a log directory: name STORE"),
        (("--server-properties", "{}", "--metadata-log", LOGS), "--metadata-log belongs to a STORE"),
        ((STORE, "--topic-id", "mixed=AAAAAAAAAAAAAAAAAAAAAQ"), "has no topic mixed with the id AAAAAAAAAAAAAAAAAAAAAQ"),
        ((STORE / "absent",), "does not exist"),
    ],
)
def test_places_that_were_mistaken(places: tuple[object, ...], message: str, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={LOGS}\n")
    run = snaprebuild("inspect records", *(str(each).replace("{}", str(properties)) for each in places))
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.stderr


def test_a_directory_above_logs_and_copies_is_one_of_logs() -> None:
    assert {each["source"] for each in shown(TIERED)["partitions"]} == {str(LOGS / "mixed-0")}


def test_copies_that_only_the_metadata_log_has_are_not_silence(tmp_path: Path) -> None:
    """All objects are gone: the partition is selected, and nothing of it was read."""
    run = in_json("inspect records", tmp_path, "--metadata-log", LOGS)
    assert run.exit_code == 4
    assert run.document["not_read"] == ["mixed-0"]


def test_a_topic_that_is_absent_next_to_one_that_is_there() -> None:
    for places in ((STORE,), (LOGS,)):
        run = in_json("inspect records", *places, "--topic", "mixed", "--topic", "typo")
        assert run.exit_code == 1
        assert "no topic matches 'typo'" in run.messages("nothing-found")
        assert run.document["shown_records"]
        alone = in_json("inspect records", *places, "--topic", "mixde")
        assert (alone.exit_code, alone.codes["nothing-found"]) == (1, 1)
        command = "tier inventory" if places == (STORE,) else "scan"
        assert alone.document["next_command"] == f"snaprebuild {command} {shlex.quote(str(places[0]))}"


# --- an export that is stopped ---------------------------------------------------------------------------------------------


def test_the_manifest_of_an_export_that_was_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is never written: what was there from the start has to say that."""
    write_files = RecordsView.write_files
    written = []

    def once(view: RecordsView) -> None:
        written.append(view)
        if len(written) > 1:
            raise WriteFailedError("is full", path=str(tmp_path))
        write_files(view)

    monkeypatch.setattr(RecordsView, "write_files", once)
    run = snaprebuild("inspect records", STORE, "--out", tmp_path / "export")
    assert run.exit_code == 5
    manifest = json.loads((tmp_path / "export" / "manifest.json").read_text())
    check(manifest)
    assert [each["code"] for each in manifest["findings"] if each["severity"] != "note"] == ["records-export-unfinished"]
    assert (manifest["exit_code"], manifest["not_read"], manifest["partitions"]) == (1, ["mixed-0"], [])
    (file,) = (tmp_path / "export").rglob("*.parquet")
    assert pq.read_table(file).num_rows > 0


@pytest.mark.parametrize("engine", ["auto", "a variable", "spark"])
def test_a_limit_that_tasks_cannot_share(engine: str, faulty: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--limit`` is refused if the command line names Spark. Else this process exports, and no session is started."""
    faulty.objects = {f"b/logs/{name}": (LOGS / name).read_bytes() for name in files_below(LOGS)}
    monkeypatch.setenv("SPARK_MASTER", "spark://127.0.0.1:1")
    monkeypatch.setattr(engine_choice, "AUTO_BYTES_MIN", 0)
    if engine == "a variable":
        monkeypatch.setenv("SNAPREBUILD_ENGINE", "spark")
    given = () if engine == "a variable" else ("--engine", engine)
    out = tmp_path / "out"
    line = ("s3://b/logs", "--s3-endpoint-url", faulty.endpoint, "--set", "s3_path_style=true", "--limit=1000")
    run = snaprebuild("inspect records", *line, *given, "--out", out)
    if engine == "spark":
        assert (run.exit_code, run.stdout, out.exists()) == (2, "", False)
    else:
        assert run.exit_code in (0, 1), run.stderr
        assert list(out.rglob("*.parquet"))
