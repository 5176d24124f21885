"""Writers against an object store that fails at any one of their requests, once or for good: the fault table of ``faulty_store``.

For each request and each fault: no object that was there is lost or another, none is half, and a run after it finishes.
"""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from command import snaprebuild
from crash_matrix_writers import AS_OF, IN_MEMORY, LONG_AGO, Figures, bare_log, whole_log
from faulty_store import FaultyStore, faulty_store
from manifests import FIXTURES

from snaprebuild.storage.s3 import requests as s3_requests

BUCKET = "bucket"
ONCE = {
    "GET": ("503", "500", "403", "drop", "short", "reset", "etag", "range"),
    "HEAD": ("503", "500", "403", "drop"),
    "PUT": ("503", "500", "409", "403", "501", "drop", "lost"),
    "DELETE": ("503", "403", "drop"),
}
LASTING = ("503", "403", "drop")
"""From this request on: the store is gone, or no longer ours."""
DRAWN = re.compile(r"(?<=-)[A-Za-z0-9_-]{22}(?=\.)")
"""Ids of segments, which each run draws."""
SMALL_SUFFIXES = (".json", ".rsm-manifest")
"""Endings of objects that hold such an id."""


@dataclass(frozen=True)
class StoreWriter:
    """A verb that writes to a store.

    Attributes:
        prepare: makes what it reads, below a directory.
        stored: what is in the bucket before.
        arguments: ``{}`` is the directory.
        codes: exit codes where nothing fails.
        is_replacing: objects may have their new bytes instead of the old ones.
    """

    prepare: Callable[[Path], None]
    arguments: tuple[str, ...]
    stored: Callable[[], dict[str, bytes]] = dict
    codes: tuple[int, ...] = (0,)
    is_replacing: bool = False


def diseased() -> dict[str, bytes]:
    root = FIXTURES / "aiven-layout" / "diseased" / "store"
    return {
        f"{BUCKET}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


STORE_WRITERS = {
    "rebuild --out s3": StoreWriter(
        bare_log,
        (
            "rebuild",
            "{}/logs",
            *AS_OF,
            "--jobs",
            "1",
            "--boundaries",
            "all",
            "--out",
            f"s3://{BUCKET}/out",
            "--receipt",
            "{}/{again}",
        ),
    ),
    "tier upload s3": StoreWriter(
        whole_log, ("tier", "upload", f"s3://{BUCKET}", "{}/logs", *LONG_AGO, "--uploader", "me", "--i-am-the-leader")
    ),
    "tier repair s3": StoreWriter(
        lambda _: None,
        ("tier", "repair", f"s3://{BUCKET}", *LONG_AGO, "--allow-unverified", "--receipt", "{}/{again}"),
        diseased,
        codes=(0, 1),
        is_replacing=True,
    ),
}


def ran(writer: StoreWriter, store: FaultyStore, root: Path, again: str) -> int:
    """The command, here; its exit code."""
    arguments = [each.replace("{again}", again).replace("{}", str(root)) for each in writer.arguments]
    return snaprebuild(*arguments, "--s3-endpoint-url", store.endpoint, "--set", "s3_path_style=true").exit_code


def masked(objects: dict[str, bytes], *, is_replacing: bool) -> dict[str, bytes | None]:
    """Objects as any run makes them."""
    if is_replacing:
        return dict(objects)
    return {DRAWN.sub("ID", key): None if key.endswith(SMALL_SUFFIXES) else data for key, data in objects.items()}


def faults_of(
    writer: StoreWriter, before: dict[str, bytes], wanted: dict[str, bytes | None], now: dict[str, bytes]
) -> Iterator[str]:
    """Faults of a bucket."""
    left = masked(now, is_replacing=writer.is_replacing)
    for key, data in before.items():
        if key not in now:
            yield f"{key} is lost"
        elif now[key] != data and not (writer.is_replacing and now[key] == wanted.get(key)):
            yield f"{key} was overwritten"
    for key in left.keys() - before.keys():
        # A probe of what the store can do is removed; where that fails it stays.
        if key not in wanted and "/.snaprebuild-" not in key and "snaprebuild-probe" not in key:
            yield f"{key} belongs to nothing"
        elif key in wanted and left[key] != wanted[key]:
            yield f"{key} is half an object"


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """No pauses between attempts, and credentials of no one."""
    names = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    with (
        mock.patch.dict(os.environ, names),
        mock.patch.object(s3_requests, "PAUSE_SECONDS", 0.001),
        mock.patch("botocore.retries.standard.ExponentialBackoff.delay_amount", return_value=0.0),
    ):
        yield


def explored_store(name: str, writer: StoreWriter, stride: int = 1) -> Figures:
    """Each request and fault, or every ``stride``-th of them."""
    started, figures = time.monotonic(), Figures(name)
    base = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with impatient(), tempfile.TemporaryDirectory(prefix="s3-faults-", dir=base) as directory, faulty_store() as store:
        root = Path(directory)
        writer.prepare(root)
        before = writer.stored()
        store.objects.update(before)
        code = ran(writer, store, root, "healthy")
        assert code in writer.codes, code
        wanted = masked(store.objects, is_replacing=writer.is_replacing)
        figures.calls = len(store.seen)
        methods = store.methods()
        table = [(index, fault, False) for index, method in enumerate(methods) for fault in ONCE.get(method, ())]
        table += [(index, fault, True) for index in range(len(methods)) for fault in LASTING]
        for number, (index, fault, is_lasting) in enumerate(table[::stride]):
            _reset(store, before)
            store.choose = _failing(index, fault, is_lasting=is_lasting)
            code = ran(writer, store, root, f"first-{number}")
            what = f"{fault} {'from' if is_lasting else 'at'} request {index} ({methods[index]})"
            if code not in (0, 1, 3, 5):
                figures.faults.append(f"{what}: exit code {code}")
            figures.faults += [f"{what}: {each}" for each in faults_of(writer, before, wanted, dict(store.objects))]
            store.choose = lambda *_: ""
            code = ran(writer, store, root, f"second-{number}")
            if code not in writer.codes:
                figures.faults.append(f"{what}: another run ends with {code}")
            figures.faults += [f"{what}: {each}" for each in faults_of(writer, before, wanted, dict(store.objects))]
            missing = wanted.keys() - masked(store.objects, is_replacing=writer.is_replacing).keys()
            if missing:
                figures.faults.append(f"{what}: another run leaves away {sorted(missing)[:3]}")
            figures.states, figures.runs = figures.states + 1, figures.runs + 1
    figures.seconds = time.monotonic() - started
    return figures


def _reset(store: FaultyStore, before: dict[str, bytes]) -> None:
    store.objects.clear()
    store.objects.update(before)
    store.metadata.clear()
    store.seen.clear()


def _failing(index: int, fault: str, *, is_lasting: bool) -> Callable[[str, str, dict[str, str]], str]:
    count = -1

    def choose(*_: object) -> str:
        nonlocal count
        count += 1
        return fault if count == index or (is_lasting and count > index) else ""

    return choose
