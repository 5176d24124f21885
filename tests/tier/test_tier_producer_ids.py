"""Producer ids in remote storage that the cluster has yet to give out: faults next to healthy forms, by `tier audit` and `tier upload`."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiven_reader import read_copies
from command import Run, in_json, snaprebuild
from manifests import CLUSTER, FIXTURES
from metadata_logs import append_metadata_record
from sentences import IDS_UP_TO
from snapshot_by_grammar import build_snapshot
from uploads import files, with_snapshot

from formats.metadata.cluster_metadata import MetadataRecordType
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.cluster.metadata.image_reader import read_image

FIXTURE = FIXTURES / "follower-lost-state"
CODE, UNKNOWN = "producer-id-collision", "producer-ids-unknown"
IN_TIME, EXPIRED = "2026-11-21T20:00:00Z", "2026-11-23T20:00:00Z"
GREATEST_ID = 20
"""In the newest copy of payments-0; the cluster of the fixture gives out 2000 next."""


def _append(node: Path, kind: MetadataRecordType, message: dict[str, object]) -> None:
    append_metadata_record(node, kind, message, 0, read_image(str(node)).fold.offset + 1)


def next_id(producer_id: int) -> Callable[[Path, Path], None]:
    """The last record lowers the next id of the cluster, as if the copies were those of another one."""
    message = {"brokerId": 1, "brokerEpoch": 5, "nextProducerId": producer_id}
    return lambda node, _: _append(node, MetadataRecordType.PRODUCER_IDS, message)


def unchanged(_node: Path, _remote: Path) -> None:
    pass


def migration(state: int) -> Callable[[Path, Path], None]:
    def change(node: Path, remote: Path) -> None:
        next_id(5)(node, remote)
        _append(node, MetadataRecordType.ZK_MIGRATION_STATE, {"zkMigrationState": state})

    return change


def newest_snapshot(remote: Path) -> Path:
    return max(remote.rglob("*.snapshot"), key=lambda path: path.name)


def written_after_the_metadata_log(node: Path, remote: Path) -> None:
    """By a producer whose id the cluster gave out later."""
    next_id(14)(node, remote)
    later = 1_795_266_442_703 + 60_000
    newest_snapshot(remote).write_bytes(build_snapshot([ProducerEntry(30, 0, 0, 700, 0, later)]))


def another_cluster(node: Path, _remote: Path) -> None:
    """Its metadata log has no topic of this id."""
    shutil.rmtree(node)
    shutil.copytree(CLUSTER / "node1", node)
    append_metadata_record(node, MetadataRecordType.PRODUCER_IDS, {"brokerId": 1, "brokerEpoch": 5, "nextProducerId": 3}, 0, 348)


def empty_newest(node: Path, remote: Path) -> None:
    """It does not parse, so the one below is compared."""
    next_id(19)(node, remote)
    newest_snapshot(remote).write_bytes(b"\0" * 40)


CASES: dict[str, tuple[Callable[[Path, Path], None], str, str | None]] = {
    "the next id is in a copy": (next_id(GREATEST_ID), IN_TIME, CODE),
    "far below": (next_id(3), IN_TIME, CODE),
    "after a migration": (migration(3), IN_TIME, CODE),
    "the newest snapshot does not parse": (empty_newest, IN_TIME, None),
    "given out": (unchanged, IN_TIME, None),
    "the next id is above": (next_id(GREATEST_ID + 1), IN_TIME, None),
    "expired": (next_id(3), EXPIRED, None),
    "during a migration": (migration(2), IN_TIME, None),
    "before a migration": (migration(1), IN_TIME, None),
    "the metadata log may be older": (written_after_the_metadata_log, IN_TIME, UNKNOWN),
    "of another cluster": (another_cluster, IN_TIME, UNKNOWN),
}
"""A change, the moment of the audit, and the code of the one finding or note; None for none."""


def audited(node: Path, remote: Path, as_of: str, *options: object) -> Run:
    return in_json("tier audit", remote, "--level", "structure", "--as-of", as_of, *options, "--metadata", node)


@pytest.mark.parametrize("name", CASES)
def test_an_audit_compares_the_ids_of_the_newest_snapshots(name: str, tmp_path: Path) -> None:
    change, as_of, code = CASES[name]
    node = Path(shutil.copytree(FIXTURE / "node1", tmp_path / "node1"))
    remote = Path(shutil.copytree(FIXTURE / "remote", tmp_path / "remote"))
    change(node, remote)
    run = audited(node, remote, as_of)
    codes = {CODE, UNKNOWN} & run.codes.keys()
    assert codes == ({code} if code else set()), run.stderr
    if code == CODE:
        assert f"{IDS_UP_TO}{GREATEST_ID}, and the next one that the cluster gives out is" in run.messages(CODE)
        assert run.exit_code == 1
    without = in_json("tier audit", remote, "--level", "structure", "--as-of", as_of)
    assert not {CODE, UNKNOWN} & without.codes.keys(), "without a metadata log nothing is said"
    if code != CODE:
        assert run.exit_code == without.exit_code, "a healthy form costs no alarm"


def test_the_snapshot_below_one_that_does_not_parse_is_compared(tmp_path: Path) -> None:
    node = Path(shutil.copytree(FIXTURE / "node1", tmp_path / "node1"))
    remote = Path(shutil.copytree(FIXTURE / "remote", tmp_path / "remote"))
    newest_snapshot(remote).write_bytes(b"\0" * 40)
    next_id(18)(node, remote)
    assert f"{IDS_UP_TO}18" in audited(node, remote, IN_TIME).messages(CODE)


def test_an_audit_says_it_first(tmp_path: Path) -> None:
    node = Path(shutil.copytree(FIXTURE / "node1", tmp_path / "node1"))
    next_id(3)(node, FIXTURE / "remote")
    run = snaprebuild("tier audit", FIXTURE / "remote", "--level", "structure", "--as-of", IN_TIME, "--metadata", node)
    assert run.stdout.startswith("1 partition has producer ids that the cluster gives out again. "), run.stdout


@pytest.mark.parametrize(("distance", "is_found"), [(0, True), (-1, False)])
def test_an_upload_compares_the_snapshots_of_copies_that_are_present(tmp_path: Path, distance: int, is_found: bool) -> None:
    """The log itself has none of these producers: its snapshots are those of the fixture."""
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node"))
    store = tmp_path / "store"
    upload = ("tier upload", store, node, "--i-am-the-leader", "--accept-own-log", "--topic-partition", "orders-1")
    assert in_json(*upload).exit_code == 0
    copy = read_copies(files(store))[-1]
    producer_id = read_image(str(node)).fold.image().next_producer_id + distance
    entry = ProducerEntry(producer_id, 0, 0, copy.base_offset, 0, int(time.time() * 1000))
    with_snapshot(store, copy, lambda _: build_snapshot([entry]))
    run = in_json(*upload, "--uploader", "another", "--allow-unverified")
    assert (CODE in run.codes) is is_found
    assert (f"which is present: orders-1 has 1 producer with {IDS_UP_TO}{producer_id}" in run.messages(CODE)) is is_found
    assert run.exit_code == 1, "the snapshot is not that of the log either way"
