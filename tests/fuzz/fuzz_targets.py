"""What is fuzzed: every reader of ``formats/``, and every verb that takes a path, each as a function of bytes.

A target returns, or raises an error of the tree of `formats/errors.py`; a verb ends with an exit code of the contract. Anything else is a
finding. `scripts/fuzz` drives the targets by coverage; `test_fuzz_corpus.py` repeats what was found on the way.
"""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from manifests import FIXTURES

from formats import (
    aiven_key,
    aiven_manifest,
    aiven_metadata,
    batch_headers,
    broker_files,
    checkpoint_file,
    cluster_metadata,
    compression,
    control_record,
    file_kind,
    file_names,
    local_tier_name,
    offset_index,
    partition_metadata,
    producer_snapshot,
    quorum_state,
    record_batch,
    records,
    remote_log_metadata,
    replication_messages,
    time_index,
    transaction_index,
    upload_claim,
)
from formats.checksum import crc32c
from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError

HEALTHY = FIXTURES / "damaged" / "healthy"
AIVEN = FIXTURES / "aiven-layout" / "plain" / "store"
IN_MEMORY = Path("/dev/shm")
SEED_BYTES_MAX = 4096
DECOMPRESSED_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Target:
    """Something that takes bytes.

    Attributes:
        run: takes them. Raises where something is wrong with us, and not with the bytes.
        seeds: where a search begins.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def bundled(*patterns: str, head: int = SEED_BYTES_MAX) -> Callable[[], list[bytes]]:
    """Beginnings of bundled files."""

    def seeds() -> list[bytes]:
        paths = [path for pattern in patterns for path in sorted(FIXTURES.glob(pattern))[:4]]
        assert paths, patterns
        return [path.read_bytes()[:head] for path in paths]

    return seeds


def reading(read: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """A reader: it gives a value or an error of the formats."""

    def run(data: bytes) -> None:
        try:
            read(data)
        except FormatError as error:
            str(error)

    return run


# ---------------------------------------------------------------------------------------------------------------- readers


def _batches(data: bytes) -> None:
    """Each batch of a segment, its records, and its control records."""
    at = 0
    while at < len(data):
        batch = data[at:]
        header = record_batch.check_batch(batch, position=at)
        batch = batch[: header.size_bytes]
        for each in records.read_records(header, batch, position=at):
            str(each)
        at += header.size_bytes


def _headers(data: bytes) -> None:
    """The quick reader and the grammar, with and without a hint, find the same batches and the same end."""
    found = []
    for engine in (True, False):
        reader = batch_headers.HeaderReader(batch_headers.BytesSegment(data), check_crc=engine)
        rows = sum(len(block) for block in reader)
        assert reader.tail is not None
        found.append((rows, reader.tail.kind))
    assert found[0] == found[1]


def _record(data: bytes) -> None:
    parsed, _ = record_batch.parse_record(data)
    control_record.parse_control_record(parsed)


def _control(data: bytes) -> None:
    key, value = data[:4], data[4:]
    control_record.parse_control_record(record_batch.Record(0, 0, key, value, (), 0))


def _snapshot(data: bytes) -> None:
    quick = producer_snapshot.read_entries(data)
    assert len(quick) == len(producer_snapshot.parse_snapshot(data))


def _sealed_snapshot(data: bytes) -> None:
    """With the right version and checksum, behind which else no random bytes come."""
    _snapshot(struct.pack(">hI", 1, crc32c(data)) + data)


def _sealed_batch(data: bytes) -> None:
    """Of magic 2 with the right length and checksum: its fields from the attributes on, and records, are those given."""
    body = data.ljust(40, b"\0")
    batch = struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body
    _headers(batch)
    _batches(batch)


def _offset_index(data: bytes) -> None:
    offset_index.positions_hint(data, 1 << 20)
    assert offset_index.read_offset_index(data) == offset_index.read_offset_index_reference(data)


def _time_index(data: bytes) -> None:
    time_index.last_timestamp_hint(data)
    assert time_index.read_time_index(data) == time_index.read_time_index_reference(data)


def _transaction_index(data: bytes) -> None:
    assert transaction_index.read_transaction_index(data) == transaction_index.read_transaction_index_reference(data)


def _replication(data: bytes) -> None:
    kinds = list(replication_messages.ReplicationMessage)
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    versions = replication_messages.versions_of(kind)
    version = versions.lowest + data[1] % (versions.highest - versions.lowest + 1) if len(data) > 1 else versions.lowest
    replication_messages.read_replication_message(kind, data[2:], version)
    if kind is replication_messages.ReplicationMessage.ALTER_PARTITION_REQUEST:
        replication_messages.read_alter_partition_request(data[2:], version)
    if kind is replication_messages.ReplicationMessage.ALTER_PARTITION_RESPONSE:
        replication_messages.read_alter_partition_response(data[2:], version)


def _decompress(data: bytes) -> None:
    codec, magic = (data[0] % 5, 2 if data[0] & 0x80 else 1) if data else (1, 2)
    compression.decompress(codec, data[1:], bytes_max=DECOMPRESSED_BYTES_MAX, magic=magic)


def _names(data: bytes) -> None:
    name = os.fsdecode(data)
    for parse in (
        file_names.parse_file_name,
        file_names.parse_partition_dir_name,
        local_tier_name.parse_local_tier_name,
        aiven_key.parse_aiven_key,
        upload_claim.parse_claim_key,
        file_kind.kind_of_name,
    ):
        parse(name)


def _kind(data: bytes) -> None:
    file_kind.kind_of_content(data, len(data))


def _names_seeds() -> list[bytes]:
    below = (path.relative_to(FIXTURES).as_posix() for path in (*HEALTHY.rglob("*"), *AIVEN.rglob("*")))
    return [*sorted({name.encode() for path in below for name in (path, path.rpartition("/")[2])})[:200]]


def _record_values(*names: str) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        found = []
        for name in names:
            data, at = (HEALTHY / name).read_bytes(), 0
            while at < len(data) and len(found) < 40:
                header = record_batch.check_batch(data[at:])
                batch = data[at : at + header.size_bytes]
                found += [each.value for each in records.read_records(header, batch) if each.value is not None]
                at += header.size_bytes
        return found

    return seeds


def _none() -> list[bytes]:
    return [b"", b"\0" * 64]


LOGS = (
    "damaged/healthy/log/payments-0/*.log",
    "magic?/logs/*/*0.log",
    "damaged/healthy/node/payments-0/*727.log",
    "txn-state/logs/*/*.log",
)
READERS = {
    "batches": Target(reading(_batches), bundled(*LOGS)),
    "batch-headers": Target(reading(_headers), bundled(*LOGS)),
    "batch-header": Target(reading(record_batch.parse_batch_header), bundled(*LOGS, head=100)),
    "record": Target(reading(_record), _none),
    "control-record": Target(reading(_control), lambda: [b"\0\0\0\1" + bytes(6), b"\0\0\0\2" + bytes(20), b"\0\0\0\6" + bytes(30)]),
    "producer-snapshot": Target(reading(_snapshot), bundled("damaged/*/log*/*.snapshot", "damaged/*/payments-0/*.snapshot")),
    "sealed-snapshot": Target(reading(_sealed_snapshot), lambda: [b"\0\0\0\1" + bytes(46), b"\0\0\0\2" + bytes(range(92))]),
    "sealed-batch": Target(reading(_sealed_batch), lambda: [each[21:] for each in bundled(*LOGS, head=600)()]),
    "offset-index": Target(reading(_offset_index), bundled("kafka27-mixed/logs/*/*.index")),
    "time-index": Target(reading(_time_index), bundled("kafka27-mixed/logs/*/*.timeindex")),
    "transaction-index": Target(reading(_transaction_index), bundled("kafka27-mixed/logs/*/*.txnindex")),
    "leader-epochs": Target(reading(checkpoint_file.read_leader_epoch_checkpoint), bundled("*/logs/*/leader-epoch-checkpoint")),
    "offset-checkpoint": Target(reading(checkpoint_file.read_offset_checkpoint), bundled("*/logs/*-offset-checkpoint")),
    "properties": Target(reading(broker_files.read_properties), bundled("*/logs/meta.properties")),
    "meta-properties": Target(reading(broker_files.read_meta_properties), bundled("*/logs/meta.properties")),
    "clean-shutdown": Target(reading(broker_files.read_clean_shutdown), bundled("*/logs/.kafka_cleanshutdown")),
    "partition-metadata": Target(reading(partition_metadata.read_partition_metadata), bundled("*/logs/*/partition.metadata")),
    "quorum-state": Target(reading(quorum_state.read_quorum_state), bundled("*/logs/*/quorum-state", "*/*/*/quorum-state")),
    "cluster-metadata": Target(
        reading(cluster_metadata.read_cluster_metadata_record), _record_values(f"controller/__cluster_metadata-0/{720:020d}.log")
    ),
    "remote-log-metadata": Target(
        reading(remote_log_metadata.read_remote_log_record), _record_values(f"tier/metadata/__remote_log_metadata-0/{0:020d}.log")
    ),
    "replication-messages": Target(reading(_replication), _none),
    "aiven-manifest": Target(reading(aiven_manifest.read_aiven_manifest), bundled("aiven-layout/*/store/**/*.rsm-manifest")),
    "aiven-metadata": Target(reading(aiven_metadata.read_aiven_metadata), _none),
    "upload-claim": Target(reading(upload_claim.read_claim), lambda: [b'{"version":1,"segment_id":"AAAAAAAAAAAAAAAAAAAAQQ"}']),
    "decompress": Target(reading(_decompress), lambda: [bytes((codec,)) + bytes(40) for codec in range(5)]),
    "names": Target(reading(_names), _names_seeds),
    "file-kind": Target(reading(_kind), bundled(*LOGS, "damaged/healthy/log/payments-0/*.snapshot", head=64)),
}
# ---------------------------------------------------------------------------------------------------------------- verbs


AS_OF = ("--as-of", "1795266500000")
TIER = "{}/tier/remote", "--metadata-log", "{}/tier/metadata"


@dataclass(frozen=True)
class Verb:
    """A command over a tree of which one file is other than it should be.

    Attributes:
        arguments: ``{}`` is the tree, ``{out}`` a place that is free.
        files: of the tree, from which the first byte of the input chooses.
    """

    arguments: tuple[str, ...]
    files: tuple[str, ...]


P, C, M = "log/payments-0", "controller/__cluster_metadata-0", "tier/metadata/__remote_log_metadata-0"
LOG_FILES = (
    *(f"{P}/{at:020d}{suffix}" for at in (56, 116) for suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")),
    f"{P}/leader-epoch-checkpoint",
    f"{P}/partition.metadata",
    *(f"log/{name}-offset-checkpoint" for name in ("recovery-point", "log-start", "replication", "cleaner")),
    "log/meta.properties",
    "log/.kafka_cleanshutdown",
)
METADATA_FILES = (
    f"{C}/{720:020d}.log",
    f"{C}/{812:020d}-0000000004.checkpoint",
    f"{C}/{740:020d}-0000000004.checkpoint",
    f"{C}/leader-epoch-checkpoint",
    f"{C}/quorum-state",
    "controller/meta.properties",
)
NODE_FILES = tuple(
    f"node/{name}"
    for name in (f"__cluster_metadata-0/{0:020d}.log", "meta.properties", ".kafka_cleanshutdown", "payments-0/partition.metadata")
)
TIER_FILES = (
    f"{M}/{0:020d}.log",
    *(
        f"tier/remote/kafka-tiered-storage/*/{56:020d}-*{each}"
        for each in (".log", ".snapshot", ".index", ".timeindex", ".leader_epoch_checkpoint")
    ),
)
AIVEN_FILES = ("aiven/**/*.rsm-manifest", "aiven/**/*.indexes", "aiven/**/*.log")

VERBS = {
    "scan": Verb(("scan", "{}/log"), LOG_FILES),
    "plan": Verb(("plan", "{}/log", *AS_OF, "--boundaries", "all"), LOG_FILES),
    "verify": Verb(("verify", "{}/log", *AS_OF, "--jobs", "1"), LOG_FILES),
    "rebuild": Verb(("rebuild", "{}/log", *AS_OF, "--out", "{out}", "--boundaries", "all", "--jobs", "1"), LOG_FILES),
    "rebuild --plan": Verb(("rebuild", "--plan", "{}/plan.json", "--jobs", "1"), ("plan.json",)),
    "stats": Verb(("stats", "{}/log", *AS_OF, "--jobs", "1"), LOG_FILES),
    "dump": Verb(("dump", f"{{}}/{P}", f"{{}}/{C}", "--deep", "--payload", "--output", "json"), (*LOG_FILES, *METADATA_FILES)),
    "diff": Verb(("diff", f"{{}}/{P}/{56:020d}.snapshot", f"{{}}/{P}/{116:020d}.snapshot"), LOG_FILES[3:9:5]),
    "explain": Verb(("explain", "{}/log", "--producer-id", "1", *AS_OF, "--jobs", "1"), LOG_FILES),
    "transactions": Verb(("transactions", "{}/log", *AS_OF, "--jobs", "1"), LOG_FILES),
    "offsets": Verb(("offsets", "{}/log", "{}/tier/remote", "--metadata-log", "{}/tier/metadata"), (*LOG_FILES, *TIER_FILES)),
    "where": Verb(("where", "{}/log", "{}/tier/remote", "--metadata-log", "{}/tier/metadata"), (*LOG_FILES, *TIER_FILES)),
    "undo": Verb(("undo", "{}/receipt.jsonl", "--dry-run"), ("receipt.jsonl",)),
    "verify --receipt": Verb(("verify", "--receipt", "{}/receipt.jsonl"), ("receipt.jsonl",)),
    "source check": Verb(("source", "check", "{}/node"), NODE_FILES),
    "isr check": Verb(("isr", "check", "{}/node"), NODE_FILES[:1]),
    "tier inventory": Verb(("tier", "inventory", *TIER), TIER_FILES),
    "tier audit": Verb(("tier", "audit", *TIER, *AS_OF), TIER_FILES),
    "tier audit (plugin)": Verb(("tier", "audit", "{}/aiven", *AS_OF), AIVEN_FILES),
    "tier repair": Verb(("tier", "repair", "{}/aiven", *AS_OF, "--allow-unverified", "--dry-run"), AIVEN_FILES),
    "tier upload": Verb(("tier", "upload", "{}/log", "{out}", "--dry-run", *AS_OF), LOG_FILES),
    "bootstrap plan": Verb(("bootstrap", "plan", "{}/log", "{}/tier/remote"), (*LOG_FILES, *TIER_FILES)),
    "follower check": Verb(("follower", "check", "{}/log", "{}/tier/remote", *AS_OF), (*LOG_FILES, *TIER_FILES)),
    "metadata image": Verb(("metadata", "image", "{}/controller"), METADATA_FILES),
    "metadata history": Verb(("metadata", "history", "{}/controller", "--topic", "meta-1"), METADATA_FILES),
    "kraft check": Verb(("kraft", "check", "{}/controller"), METADATA_FILES),
    "kraft advise": Verb(("kraft", "advise", "{}/controller"), METADATA_FILES),
    "kraft simulate": Verb(("kraft", "simulate", "{}/scenario.toml"), ("scenario.toml",)),
}


@cache
def _tree() -> Path:
    """The healthy directories, once for the process, where nothing but memory is written to."""
    base = IN_MEMORY if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="fuzz-", dir=base))
    for name in ("log", "node", "tier", "controller"):
        shutil.copytree(HEALTHY / name, root / name)
    shutil.copytree(AIVEN, root / "aiven")
    shutil.copy(FIXTURES.parent / "docs" / "examples" / "metadata-log.toml", root / "scenario.toml")
    _run(["plan", f"{root}/log", *AS_OF, "--boundaries", "all", "--out", f"{root}/planned", "--save", f"{root}/plan.json"])
    _run(
        ["rebuild", f"{root}/log", *AS_OF, "--out", f"{root}/written", "--boundaries", "all", "--receipt", f"{root}/receipt.jsonl"]
    )
    atexit.register(shutil.rmtree, root, True)
    return root


def _run(arguments: list[str]) -> tuple[int, str]:
    from typer.testing import CliRunner

    from snaprebuild.cli.main import app

    try:
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    except SnaprebuildError as error:  # the entry point prints it
        return error.exit_code, str(error)
    return done.exit_code, done.output


def _path(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0] if "*" in pattern else root / pattern


def _verb(verb: Verb) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        root = _tree()
        path = _path(root, verb.files[data[0] % len(verb.files)]) if data else root / "log" / "nothing"
        before, status = (path.read_bytes(), path.stat()) if path.exists() else (None, None)
        out = root / "out"
        path.write_bytes(data[1:])
        try:
            code, output = _run([each.replace("{out}", str(out)).replace("{}", str(root)) for each in verb.arguments])
            assert code in (0, 1, 2, 3, 4, 5), code
            assert "unforeseen" not in output, output[-2000:]
        finally:
            shutil.rmtree(out, ignore_errors=True)
            if before is None or status is None:
                path.unlink()
            else:
                path.write_bytes(before)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # or a saved plan would be stale for good

    return run


def _verb_seeds(verb: Verb) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        root = _tree()
        found = [(index, _path(root, each)) for index, each in enumerate(verb.files)]
        return [bytes((index,)) + (path.read_bytes() if path.exists() else b"") for index, path in found]

    return seeds


TARGETS: dict[str, Target] = READERS | {
    name.replace(" --", "-").replace(" ", "-"): Target(_verb(verb), _verb_seeds(verb)) for name, verb in VERBS.items()
}
