"""Calls to the file system for each partition and each segment, by command: listings, opened files, looks at a file (stat). And
requests to an object store for each partition, by verb.

A partition is listed a fixed number of times, whatever its number of segments: a listing for each segment once made an upload of 5,000
segments take 17 minutes.
"""

import contextlib
import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from command import snaprebuild
from faulty_store import faulty_store
from log_dirs import batch, make_log_dir, write_partition

FEW, MANY = 4, 16
AS_OF = ("--as-of", "1970-01-01T00:00:02Z")
RECEIPT = ("--receipt", "{}.jsonl")
ONE_JOB = ("--jobs", "1")
OVER_A_LOG: dict[str, tuple[tuple[str, ...], int, int, int]] = {
    "scan": (("scan", "{}"), 1, 0, 0),
    "plan": (("plan", "{}", *AS_OF), 1, 1, 0),
    "verify": (("verify", "{}", *AS_OF, *ONE_JOB), 1, 3, 0),
    "rebuild --out": (("rebuild", "{}", "--out", "{}-out", *RECEIPT, *AS_OF, *ONE_JOB), 1, 4, 0),
    "rebuild in place": (("rebuild", "{}", *RECEIPT, *AS_OF, *ONE_JOB), 3, 7, 3),
    "stage": (("stage", "{}", "--to", "{}-staged", *AS_OF, *ONE_JOB), 1, 4, 1),
    "inspect transactions": (("inspect", "transactions", "{}", *AS_OF, *ONE_JOB), 1, 2, 0),
    "inspect stats": (("inspect", "stats", "{}", *AS_OF, *ONE_JOB), 1, 2, 0),
    "inspect explain": (("inspect", "explain", "{}", "--producer-id", "7", *AS_OF, *ONE_JOB), 1, 2, 0),
    "follower offsets": (("follower", "offsets", "{}", *ONE_JOB), 1, 1, 0),
    "follower fetch-path": (("follower", "fetch-path", "{}"), 1, 0, 0),
    "tier upload --dry-run": (("tier", "upload", "{}-store", "{}", "--dry-run", "--i-am-the-leader", *AS_OF), 1, 17, 1),
}
"""Words of each command, the listings of a partition, and the most opens and looks for each segment. These are the present numbers:
a higher one needs a reason. `stage` looks at each segment for its inode change time, which shows at `install` that it was written
to since."""


def log_dir(root: Path, count: int) -> Path:
    """A broker's directory with one partition of rolled segments, with all that an upload needs but snapshots."""
    ends = {"t-0": count + 1}
    checkpoint = f"0\n1\nt 0 {count + 1}\n"
    make_log_dir(root, recovery_points=ends, **{"replication-offset-checkpoint": checkpoint})
    segments = {offset: batch(offset, producer_id=7, sequence=offset) for offset in range(count + 1)}
    directory = write_partition(root / "t-0", segments)
    for offset in segments:
        (directory / f"{offset:020d}.index").touch()
        (directory / f"{offset:020d}.timeindex").write_bytes(struct.pack(">qi", 1_000, 0))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAKg\n")
    return root


@contextlib.contextmanager
def counted(directory: Path) -> Iterator[Counter[str]]:
    """Calls that concern a directory or a file in it, by name or by an open descriptor of the directory."""
    counts: Counter[str] = Counter()

    def is_below(place: object, dir_fd: object = None) -> bool:
        if isinstance(dir_fd, int):
            place = os.readlink(f"/proc/self/fd/{dir_fd}")
        elif isinstance(place, int):
            place = os.readlink(f"/proc/self/fd/{place}")
        return os.fspath(place).startswith(str(directory))  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patch:
        for name, kind in {
            "scandir": "listings",
            "listdir": "listings",
            "open": "opens",
            "stat": "looks",
            "lstat": "looks",
        }.items():

            def call(*arguments: object, _real: object = getattr(os, name), _kind: str = kind, **options: object) -> object:
                if arguments and is_below(arguments[0], options.get("dir_fd")):
                    counts[_kind] += 1
                return _real(*arguments, **options)  # type: ignore[operator]

            patch.setattr(os, name, call)
        yield counts


def costs(name: str, root: Path, count: int) -> Mapping[str, int]:
    words, *_ = OVER_A_LOG[name]
    log = log_dir(root / f"{count}", count)
    with counted(log / "t-0") as counts:
        ran = snaprebuild(*(each.replace("{}", str(log)) for each in words))
    assert ran.exit_code in (0, 1), ran
    return counts


@pytest.mark.parametrize("name", OVER_A_LOG)
def test_a_partition_is_listed_a_fixed_number_of_times(name: str, tmp_path: Path) -> None:
    _, listings, opens, looks = OVER_A_LOG[name]
    few, many = (costs(name, tmp_path, count) for count in (FEW, MANY))
    assert few["listings"] == many["listings"], (few, many)
    assert many["listings"] == listings, many
    for what, most in (("opens", opens), ("looks", looks)):
        assert many[what] - few[what] <= most * (MANY - FEW), (what, (many[what] - few[what]) / (MANY - FEW))


SEGMENTS = 3
"""Rolled ones of each partition; each needs a snapshot, and so does the log end."""

OF_A_STORE: dict[str, dict[str, int]] = {
    "new": {"LIST": 2, "PUT": SEGMENTS + 1},
    "again": {"LIST": 2, "GET": SEGMENTS + 1},
    "dry-run": {"LIST": 2},
}
"""Requests for one more partition of each run of ``rebuild --out s3://`` over a log directory. The planner lists the target once,
which shows whether it is a broker's; the task that writes lists what is there."""


@pytest.mark.parametrize("run", OF_A_STORE)
def test_requests_for_each_partition_of_an_output_in_a_store(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    few, many = (requests(run, tmp_path, count, monkeypatch) for count in (2, 5))
    more = {verb: (many[verb] - few[verb]) / 3 for verb in many if many[verb] != few[verb]}
    assert more == OF_A_STORE[run]


def requests(run: str, root: Path, partitions: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests by verb. Each place is new, so that each is probed once."""
    log = log_dir(root / f"{partitions}", SEGMENTS)
    for number in range(1, partitions):
        shutil.copytree(log / "t-0", log / f"t-{number}")
    with faulty_store() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.endpoint)
        words = ["rebuild", str(log), "--out", f"s3://b/{run}-{partitions}", *AS_OF, *ONE_JOB]
        if run == "again":
            assert snaprebuild(*words, "--receipt", f"{log}-first").exit_code == 0
            store.seen.clear()
        ran = snaprebuild(*words, *(["--dry-run"] if run == "dry-run" else ["--receipt", f"{log}-last"]))
        assert ran.exit_code == 0, ran
        return Counter("LIST" if "list-type=2" in path else verb for verb, path, _ in store.seen)
