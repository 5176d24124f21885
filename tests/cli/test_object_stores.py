"""The verbs over ``s3://``: the same results as over the directory that was uploaded, at a real object store."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from faulty_store import FaultyStore, faulty_store
from log_dirs import copy_of, entries_in, files_below, snapshot_name, truth
from manifests import FIXTURES, REPOSITORY
from object_store import ObjectStore
from sentences import PLAN_IS_STALE, WOULD_DISTURB

from snaprebuild import ReplayOptions, SnapshotRefusedError, UsageError, ensure_snapshot
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots import run as runs
from snaprebuild.snapshots.engine import schedule
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import verify
from snaprebuild.storage import thread_pool
from snaprebuild.storage.s3.request_limits import meter_of
from snaprebuild.storage.store import S3Settings

pytestmark = pytest.mark.full

AS_OF = ("--as-of", "2026-11-21T00:00:00Z")
PATH_STYLE = ("--set", "s3_path_style=true")


FIXTURES_READ = {
    "scan": "scan {damaged/logs}",
    "plan": "plan {kafka27-mixed/logs} --boundaries all --as-of 2026-11-21",
    "verify": "verify {damaged/logs} --as-of 2026-11-21",
    "inspect stats": "inspect stats {txn-state/logs} --as-of 2026-11-21",
    "inspect transactions": "inspect transactions {kafka27-mixed/logs} --as-of 2026-11-21",
    "inspect explain": "inspect explain {kafka27-mixed/logs} --producer-id 0 --topic mixed --as-of 2026-11-21",
    "inspect diff": "inspect diff {kafka27-mixed/logs}/mixed-0/00000000000000007045.snapshot"
    " {kafka27-mixed/logs}/mixed-0/00000000000000008231.snapshot",
    "cluster source": "cluster source {kraft-cluster3/node1} --topic orders --purpose upload",
    "cluster image": "cluster image {kraft-cluster3/node1} --voter {kraft-cluster3/node2}",
    "follower offsets": "follower offsets {follower-lost-state/remote} {follower-lost-state/node1} --topic payments"
    " --metadata-log {follower-lost-state/node1} --timestamp -1 --timestamp -5 --timestamp 1795266408209 --timestamp 1795266437287",
    "follower check": "follower check {follower-lost-state/remote} {follower-lost-state/node2} --as-of 2026-11-21T14:00:00Z",
    "tier audit": "tier audit {aiven-layout/diseased-zstd/store} --as-of 2026-11-20",
    "tier inventory": "tier inventory {tiered-local/remote} --as-of 2026-11-20",
    "inspect records": "inspect records {tiered-local/remote} {tiered-local/logs} --metadata-log {tiered-local/logs} --limit 50",
    "inspect records (plugin)": "inspect records {aiven-layout/zstd-one-chunk/store} --limit 50",
    "tier inventory (plugin)": "tier inventory {aiven-layout/encrypted-zstd/store} --as-of 2026-11-20",
}
"""A command over bundled fixtures for each verb that reads."""
PLACE = re.compile(r"{(.*?)}")


class Uploaded:
    """Bundled directories in one bucket, uploaded when they are asked for."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._bucket = store.bucket()
        self._locations: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._locations:
            self._locations[name] = self._store.upload(FIXTURES / name, f"s3://{self._bucket}/copies of/{name}")
        return self._locations[name]


@pytest.fixture(scope="module")
def uploaded(object_store: ObjectStore) -> Uploaded:
    return Uploaded(object_store)


def without_places(value: Any, places: dict[str, str]) -> Any:
    """A document without what must differ: locations, how the store was reached, identities but for the size, times and prices."""
    if isinstance(value, dict):
        dropped = {
            "s3",
            "run",
            "receipt",
            "held_by",
            "rate_bytes_per_second",
            "elapsed_seconds",
            "phase_seconds",
            "estimated_seconds",
            "estimate",
        }
        dropped |= {"modified_ms", "modified_ns", "inode", "etag", "age_ms", "object_storage_classes", "bucket"}
        dropped |= {"next_command"}  # it repeats places and options, as a shell needs them
        # verify does not ask what a broker would upload from an object store, and the answer has the count in words
        dropped |= {"waiting_unknown", "answer"}
        kept = {key: each for key, each in value.items() if key not in dropped}
        if (
            "findings" in kept
        ):  # no broker starts on an object store, so nothing is written where it would be uploaded without an id
            kept["findings"] = [each for each in kept["findings"] if each["code"] not in ("topic-id-missing", "bucket-not-read")]
        return {key: without_places(each, places) for key, each in kept.items()}
    if isinstance(value, list):
        return [without_places(each, places) for each in value]
    if isinstance(value, str):
        for place, name in places.items():
            value = value.replace(place, name)
    return value


def compared(here: Run, there: Run, places: dict[str, str]) -> None:
    assert here.exit_code == there.exit_code, there.stderr
    assert without_places(there.document, places) == without_places(here.document, places)


@pytest.mark.s3
@pytest.mark.parametrize("name", FIXTURES_READ)
def test_an_object_store_says_the_same(name: str, uploaded: Uploaded) -> None:
    names = PLACE.findall(FIXTURES_READ[name])

    def run(places: Mapping[str, str]) -> Run:
        return in_json(*(PLACE.sub(lambda found: places[found[1]], word) for word in FIXTURES_READ[name].split()))

    local = {each: str(FIXTURES / each) for each in names}
    remote = {each: uploaded[each] for each in names}
    compared(run(local), run(remote), {place: each for places in (local, remote) for each, place in places.items()})


def dumped(*arguments: object) -> Run:
    return snaprebuild("inspect dump", *arguments, "--output", "json")


@pytest.mark.s3
@pytest.mark.parametrize("name", ["kafka27-mixed", "kraft-metadata"])
def test_every_file_is_dumped_as_here(name: str, uploaded: Uploaded) -> None:
    logs, location = FIXTURES / name / "logs", uploaded[f"{name}/logs"]
    names = sorted(name for name in files_below(logs) if not name.endswith(".lock"))
    here = dumped(*(logs / name for name in names), "--deep")
    there = dumped(*(f"{location}/{each}" for each in names), "--deep")
    assert there.exit_code == here.exit_code
    assert there.stdout.replace(location, str(logs)) == here.stdout
    assert len(here.stdout.splitlines()) > len(names)


@pytest.mark.s3
def test_dump_of_what_is_not_there_and_of_what_is_nothing(object_store: ObjectStore, uploaded: Uploaded) -> None:
    place = f"s3://{object_store.bucket()}/odd"
    object_store.put(f"{place}/unnamed", b"hello")
    whole = f"{uploaded['kafka27-mixed/logs']}/mixed-0/leader-epoch-checkpoint"
    run = dumped(f"{place}/unnamed", f"{place}/absent", whole)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.exit_code == 5
    reported = {line["path"]: (line["code"], line["severity"]) for line in lines if line["item"] == "finding"}
    assert reported == {f"{place}/unnamed": ("unknown-kind", "finding"), f"{place}/absent": ("storage-failed", "storage")}
    assert [line["file"] for line in lines if line["item"] == "file"] == [whole]
    assert any(line["item"] == "leader_epoch" for line in lines)
    assert dumped(f"{place}/unnamed", whole).exit_code == 1
    assert snaprebuild("inspect", "dump", "s3://", whole).exit_code == 2
    assert dumped(whole, "--set", "max_requests=1").exit_code == 3


@pytest.mark.s3
def test_the_door_for_uploaders(object_store: ObjectStore, uploaded: Uploaded, tmp_path: Path) -> None:
    """Snapshots are right as in a directory. With a prefix as target they are written once and never over another object."""
    logs, location = FIXTURES / "kafka27-mixed" / "logs", uploaded["kafka27-mixed/logs"]
    out = f"s3://{object_store.bucket()}/out"
    bases = sorted(int(path.stem) for path in (logs / "mixed-0").glob("*.log"))[1:3]
    options = ReplayOptions(as_of_ms=1_795_219_200_000, replay_from="log-start")
    for base in bases:
        here = ensure_snapshot(logs / "mixed-0", base, options=options)
        there = ensure_snapshot(f"{location}/mixed-0", base, out=out, options=options)
        assert (there.data, there.origin, there.snapshot_class) == (here.data, here.origin, here.snapshot_class)
        assert there.path == f"{out}/{snapshot_name(base)}"
        assert object_store.get(there.path) == here.data
        assert ensure_snapshot(f"{location}/mixed-0", base, out=out, options=options).path == there.path
    object_store.put(f"{out}/{snapshot_name(bases[0])}", b"another")
    with pytest.raises(SnapshotRefusedError, match="another file of this name is there"):
        ensure_snapshot(f"{location}/mixed-0", bases[0], out=out, options=options)
    with pytest.raises(SnapshotRefusedError, match="max_requests 2 is used up"):
        ensure_snapshot(f"{location}/mixed-0", bases[0], options=replace(options, s3=S3Settings(max_requests=2, run="few")))
    with pytest.raises(SnapshotRefusedError, match="out leads into"):
        ensure_snapshot(f"{location}/mixed-0", bases[0], out=f"{location}/mixed-0", options=options)
    with pytest.raises(UsageError, match="there is no object below it"):
        ensure_snapshot(f"{location}/absent-0", bases[0], options=options)


@pytest.mark.s3
def test_beside_the_segments(object_store: ObjectStore, tmp_path: Path) -> None:
    """Only what is due there, as in a log directory, and nothing the second time; what was there is as it was."""
    logs = copy_of("kafka27-mixed", tmp_path)
    location = object_store.upload(logs, f"s3://{object_store.bucket()}/a/logs")
    before = object_store.files(location)
    run = in_json("rebuild", location, *PATH_STYLE, *AS_OF, "--receipt", tmp_path / "receipt")
    assert (run.exit_code, run.totals) == (0, {"written": 14})
    local = in_json("rebuild", logs, *AS_OF)
    assert local.totals == {"written": 14}
    after = object_store.files(location)
    assert {key: after[key] for key in before} == before
    assert {key for key in after if key not in before} == {
        f for f in files_below(logs) if f not in before and f.endswith(".snapshot")
    }
    assert all(after[key] == (logs / key).read_bytes() for key in after)
    assert in_json("rebuild", location, *AS_OF).totals == {}
    assert in_json("verify", location, *AS_OF).exit_code == 0
    for verb in (("undo",), ("verify", "--written-by")):
        refused = snaprebuild(*verb, tmp_path / "receipt")
        assert refused.exit_code == 3
        assert "objects in a bucket" in refused.stderr
    assert object_store.files(location) == after


@pytest.mark.s3
def test_to_another_prefix(object_store: ObjectStore, uploaded: Uploaded) -> None:
    out = f"s3://{object_store.bucket()}/out"
    options = ("--boundaries", "all", "--replay-from", "log-start", *AS_OF)
    run = in_json("rebuild", uploaded["kafka27-mixed/logs"], "--out", out, *options)
    assert (run.exit_code, run.totals) == (0, {"written": 23})
    files = object_store.files(out)
    found = {int(name[8:28]): entries_in(data) for name, data in files.items() if name.startswith("mixed-0/")}
    assert found == truth("kafka27-mixed", "mixed-0")
    assert in_json("rebuild", uploaded["kafka27-mixed/logs"], "--out", out, *options).totals == {"equal": 23}
    other = next(iter(files))
    object_store.put(f"{out}/{other}", files[other][:6] + b"\0\0\0\0")
    run = in_json("rebuild", FIXTURES / "kafka27-mixed" / "logs", "--out", out, *options)
    assert (run.exit_code, run.totals) == (1, {"equal": 22, "kept": 1})
    assert object_store.files(out)[other] == files[other][:6] + b"\0\0\0\0"


@pytest.mark.s3
def test_out_leads_into_a_copy_of_a_log_directory(object_store: ObjectStore, uploaded: Uploaded) -> None:
    logs = uploaded["kafka27-mixed/logs"]
    for out in (logs, f"{logs}/mixed-0", f"{logs}/new/place", uploaded["magic0/logs"]):
        before = object_store.files(logs)
        run = snaprebuild("rebuild", logs, "--out", out, *AS_OF)
        assert run.exit_code == 3, out
        assert f"where its files {WOULD_DISTURB}" in run.stderr
        assert object_store.files(logs) == before


@pytest.mark.s3
def test_a_saved_plan(object_store: ObjectStore, tmp_path: Path) -> None:
    location = object_store.upload(FIXTURES / "kafka27-mixed" / "logs", f"s3://{object_store.bucket()}/logs")
    saved = tmp_path / "plan.json"
    assert snaprebuild("plan", location, *PATH_STYLE, "--save", saved, "--out", tmp_path / "out", *AS_OF).exit_code == 0
    assert '"s3": {"endpoint_url": null, "path_style": true' in saved.read_text()
    assert snaprebuild("rebuild", "--plan", saved, "--dry-run").exit_code == 0
    name = "mixed-0/00000000000000000583.log"
    object_store.put(f"{location}/{name}", object_store.get(f"{location}/{name}")[:-1] + b"\xff")
    run = snaprebuild("rebuild", "--plan", saved)
    assert run.exit_code == 3
    assert f"{PLAN_IS_STALE}: " in run.stderr
    assert "segments: the one at offset 583 was written at " in run.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.s3
def test_limits(object_store: ObjectStore, uploaded: Uploaded, tmp_path: Path) -> None:
    location = uploaded["kafka27-mixed/logs"]
    run = snaprebuild("scan", location, "--set", "max_requests=3")
    assert run.exit_code == 3
    assert "max_requests 3 is used up" in run.stderr
    size = sum(path.stat().st_size for path in (FIXTURES / "kafka27-mixed" / "logs").rglob("*.log"))
    run = in_json("verify", location, "--set", f"max_read_bytes={size // 2}", *AS_OF)
    assert run.exit_code == 3
    assert "max_read_bytes" in run.messages("refused")
    assert in_json("verify", location, "--set", f"max_read_bytes={2 * size}", "--set", "max_requests=500", *AS_OF).exit_code == 0
    out = f"s3://{object_store.bucket()}/out"
    assert snaprebuild("rebuild", location, "--out", out, "--set", "max_requests=20", *AS_OF).exit_code == 3
    assert all(name.startswith(".snaprebuild-probe-") for name in object_store.files(out))


@pytest.mark.s3
def test_worker_processes_share_the_limits(uploaded: Uploaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of worker processes count here, and requests of this process count there."""
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    logs, location = FIXTURES / "kafka27-mixed" / "logs", uploaded["kafka27-mixed/logs"]
    size = sum(path.stat().st_size for path in logs.rglob("*.log"))
    clock = Clock(1_795_219_200_000, 86_400_000)
    result = verify(open_source([location], run=runs.Run(stores=S3Settings(run="workers"))), runs.Run(clock=clock, jobs=2))
    assert sum(each.outcome.read_bytes for each in result.partitions) == size
    assert exit_code_of(result.findings) == 0
    assert meter_of("workers").read_bytes >= size
    limited = S3Settings(run="limited", max_read_bytes=size // 2)
    result = verify(open_source([location], run=runs.Run(stores=limited)), runs.Run(clock=clock, jobs=2))
    assert exit_code_of(result.findings) == 3
    assert size // 4 < meter_of("limited").read_bytes <= size // 2


STARTED_EARLIER = """
import json, multiprocessing, os, sys
from snaprebuild.snapshots.engine import schedule
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import verify

if __name__ == "__main__":
    earlier = multiprocessing.get_context("forkserver").Process(target=print)
    earlier.start()
    earlier.join()
    os.environ.update(json.loads(sys.argv[2]))
    schedule.IN_PROCESS_BYTES_MAX = 0
    result = verify(open_source([sys.argv[1]]), Run(clock=Clock(1_795_219_200_000, 86_400_000), jobs=2))
    print(exit_code_of(result.findings), sum(each.outcome.read_bytes for each in result.partitions))
"""


def test_workers_ask_the_store_of_now(tmp_path: Path) -> None:
    """Somebody started the server that workers are forked from, and only later said where the store is and who asks."""
    logs = FIXTURES / "kafka27-mixed" / "logs"
    script = tmp_path / "started_earlier.py"
    script.write_text(STARTED_EARLIER)
    with faulty_store() as store:
        store.objects = {f"bucket/{path.relative_to(logs)}": path.read_bytes() for path in logs.rglob("*") if path.is_file()}
        now = {"AWS_ENDPOINT_URL_S3": store.endpoint, "AWS_ACCESS_KEY_ID": "now", "AWS_SECRET_ACCESS_KEY": "now"}
        now["AWS_DEFAULT_REGION"] = "us-east-1"
        earlier = {**os.environ, **now, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "earlier"}
        done = subprocess.run(
            [sys.executable, script, "s3://bucket", json.dumps(now)],
            cwd=REPOSITORY,
            env=earlier,
            capture_output=True,
            text=True,
            check=True,
        )
        seen = {headers["authorization"].split("/")[0] for _, _, headers in store.seen}
    size = sum(path.stat().st_size for path in logs.rglob("*.log"))
    assert done.stdout.split() == ["0", str(size)], done.stderr
    assert seen == {"AWS4-HMAC-SHA256 Credential=now"}


@pytest.mark.s3
def test_locations_that_lead_nowhere(object_store: ObjectStore, uploaded: Uploaded) -> None:
    bucket = object_store.bucket()
    for location, code, text in (
        (f"s3://{bucket}/nothing", 2, "there is no object below it"),
        ("s3://user:secret@host/logs", 2, "expected s3://BUCKET/PREFIX"),
        (f"s3://{bucket}/a/../b", 2, "a part of the prefix"),
        ("s3://no-such-bucket-here/logs", 5, "404 NoSuchBucket"),
    ):
        run = snaprebuild("scan", location)
        assert run.exit_code == code, (location, run.stderr)
        assert text in run.stderr
        assert "secret" not in run.stdout + run.stderr


@pytest.mark.s3
def test_no_secret_is_reported(
    object_store: ObjectStore, uploaded: Uploaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither keys of the environment, a token, a customer's key, nor the password of a URL; in no log, document or error."""
    secrets_ = ["wrong-secret-key-0123", "session-token-4567", "hunter2", "00112233445566778899aabbccddeeff"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secrets_[0])
    monkeypatch.setenv("AWS_SESSION_TOKEN", secrets_[1])
    key = tmp_path / "key"
    key.write_text(secrets_[3])
    reported = []
    for arguments in (
        ("scan", uploaded["magic0/logs"], "-vv"),
        ("scan", uploaded["magic0/logs"], "-vv", "--set", f"s3_sse_c_key_file={key}", "--output", "json"),
        ("scan", uploaded["magic0/logs"], "-vv", "--s3-endpoint-url", "http://user:hunter2@127.0.0.1:1"),
        ("plan", uploaded["magic0/logs"], "-vv", "--save", tmp_path / "plan"),
    ):
        run = snaprebuild(*arguments)
        assert run.exit_code in (2, 5), run.stderr
        reported.append(run.stdout + run.stderr)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://user:hunter2@127.0.0.1:1")
    reported.append(snaprebuild("scan", uploaded["magic0/logs"], "-vv").stderr)
    if (tmp_path / "plan").exists():
        reported.append((tmp_path / "plan").read_text())
    assert not [secret for secret in secrets_ if secret in "".join(reported)]


@pytest.fixture
def counted(faulty: FaultyStore) -> FaultyStore:
    """A store with a log directory that shows what is asked of it."""
    logs = FIXTURES / "kafka27-mixed" / "logs"
    faulty.objects = {f"b/logs/{name}": (logs / name).read_bytes() for name in files_below(logs)}
    return faulty


@pytest.mark.parametrize("options", [("--out", "s3://b/out"), ()], ids=["out", "beside"])
def test_a_store_that_would_replace(options: tuple[str, ...], counted: FaultyStore) -> None:
    """Some ignore conditions and report no error: then not one snapshot is written."""
    counted.ignores_conditions = True
    before = dict(counted.objects)
    run = snaprebuild("rebuild", "s3://b/logs", *options, "--s3-endpoint-url", counted.endpoint, *PATH_STYLE, *AS_OF)
    assert run.exit_code == 3
    assert "the store ignores If-None-Match" in run.stderr
    assert counted.objects == before


def test_a_store_that_does_not_agree_with_itself(counted: FaultyStore) -> None:
    """It says that a name is taken, and has nothing there."""
    before = dict(counted.objects)
    place = ("s3://b/logs", "--out", "s3://b/out", "--s3-endpoint-url", counted.endpoint, *PATH_STYLE, *AS_OF)
    counted.choose = lambda method, path, _: "412" if method == "PUT" and path.endswith("/00000000000000001662.snapshot") else ""
    run = in_json("rebuild", *place)
    assert (run.exit_code, run.totals) == (5, {"written": 13, "failed": 1})
    assert any("its name is taken, and has no such object" in each["message"] for each in run.document["findings"])
    assert {name: counted.objects[name] for name in before} == before


def test_no_remedy_is_named_that_objects_do_not_have(counted: FaultyStore) -> None:
    """A wrong snapshot in a bucket is reported, and no one is led to --set-aside, which is refused there."""
    counted.objects["b/logs/mixed-0/00000000000000007637.snapshot"] = b"no snapshot"
    place = ("s3://b/logs", "--topic", "mixed", "--s3-endpoint-url", counted.endpoint, *PATH_STYLE, *AS_OF)
    run = in_json("rebuild", *place, "--dry-run")
    assert "objects are never replaced" in run.messages("corrupt-snapshot")
    assert "set-aside" not in run.messages("corrupt-snapshot")
    run = in_json("rebuild", *place, "--out", "s3://b/out", "--boundaries", "all")
    assert "objects are never replaced, also not by --set-aside" in run.messages("wrong-snapshot")


def test_what_a_scan_costs(counted: FaultyStore) -> None:
    """A scan reads small files and snapshots, each once, and nothing else (docs/guides/object-storage.md)."""
    scan_source(open_source(["s3://b/logs"], run=runs.Run(stores=S3Settings(endpoint_url=counted.endpoint, path_style=True))))
    of_broker = 7 + 6  # asked for, and read: no one reads the lock
    snapshots = sum(name.endswith(".snapshot") for name in counted.objects)
    of_partitions = sum(name.endswith(("/leader-epoch-checkpoint", "/partition.metadata")) for name in counted.objects)
    assert len(counted.seen) == 1 + of_broker + of_partitions + snapshots == 27
    assert not [path for _, path, _ in counted.seen if path.endswith((".log", "index"))]


def test_a_scan_reads_several_snapshots_at_once(counted: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = S3Settings(endpoint_url=counted.endpoint, path_style=True)
    for counted.seconds in (0.02, 0.2, 2.0):  # on a busy machine quick requests may not meet
        counted.seen.clear()
        result = scan_source(open_source(["s3://b/logs/mixed-0"], run=runs.Run(stores=settings)))
        assert counted.at_once <= thread_pool.THREADS + 1
        if counted.at_once >= 4:
            break
    assert counted.at_once >= 4
    snapshots = [name for name in counted.objects if name.startswith("b/logs/mixed-0/") and name.endswith(".snapshot")]
    asked = [path.strip("/") for method, path, _ in counted.seen if method == "GET" and path.endswith(".snapshot")]
    assert sorted(asked) == sorted(snapshots), "each once"
    here = scan_source(open_source([str(FIXTURES / "kafka27-mixed" / "logs" / "mixed-0")]))
    (found,), (expected,) = result.partitions, here.partitions
    assert (found.boundaries, found.totals) == (expected.boundaries, expected.totals)


def test_options_of_access(counted: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests follow the options of the command line, also those of its processes and plans. None of it contains a key."""
    key = base64.b64encode(bytes(range(32))).decode()
    monkeypatch.setenv("SNAPREBUILD_S3_SSE_C_KEY", key)
    place = ("s3://b/logs", "--s3-endpoint-url", counted.endpoint, *PATH_STYLE)
    run = snaprebuild("scan", *place, "--set", "s3_anonymous=true", "-vv")
    assert run.exit_code in (0, 1), run.stderr
    assert not [headers for _, _, headers in counted.seen if "authorization" in headers]
    assert {headers.get("x-amz-server-side-encryption-customer-key") for _, _, headers in counted.seen} == {key, None}
    assert key not in run.stdout + run.stderr
    counted.seen.clear()
    saved = tmp_path / "plan"
    run = snaprebuild("plan", *place, "--set", "s3_requester_pays=true", "--save", saved, "--out", "s3://b/out", *AS_OF, "-vv")
    assert run.exit_code in (0, 1), run.stderr
    assert {headers.get("x-amz-request-payer") for _, _, headers in counted.seen} == {"requester"}
    assert key not in run.stdout + run.stderr + saved.read_text()
    run = snaprebuild("scan", *place, "--set", "s3_anonymous=true", "--set", "s3_requester_pays=true")
    assert (run.exit_code, run.stdout) == (2, "")
    assert "an anonymous request has no account that pays" in run.stderr
