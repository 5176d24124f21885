"""A rejection that the records of a metadata log still prove is not lifted because the log lost its end.

Faults are next to healthy forms. Each is judged with the whole log, and with two forms of it that lost their end.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from log_dirs import batch_positions
from manifests import CLUSTER
from metadata_dirs import DIRECTORY

from snaprebuild.cluster.source_check.check import check_sources
from snaprebuild.cluster.source_check.source_question import SourceQuestion
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.run import Run

NOW_MS = 1_795_300_000_000
ID_OF_A_DELETED_TOPIC = "kJEH2V5MQ3qe3pGZOsqMwA"
"""The first topic ``reborn``: ``TopicRecord`` at offset 38, and removed later (``expected/node1…dump.txt``)."""
ID_OF_NO_RECORD = "abcdefghijklmnopqrstuA"

Change = Callable[[Path], object]
"""A change of a copy of the log directory of a node."""


def whole(_: Path) -> None:
    """Nothing changes."""


def unclosed(node: Path) -> None:
    """Without the snapshot that a clean stop leaves at the end of the log."""
    max((node / DIRECTORY).glob("*.snapshot")).unlink()


def cut(node: Path) -> None:
    """Without its last batch, which changes no registration: it is a ``NoOpRecord`` or of a snapshot."""
    log = max((node / DIRECTORY).glob("*.log"))
    os.truncate(log, batch_positions(log)[-1])


def with_topic_id(text: str) -> Change:
    return lambda node: (node / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")


def with_directory_id(node: Path) -> None:
    path = node / "meta.properties"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("directory.id")]
    path.write_text("\n".join([*kept, "directory.id=AAECAwQFBgcICQoLDA0ODw"]) + "\n")


def with_marker_of(epoch: int) -> Change:
    return lambda node: (node / ".kafka_cleanshutdown").write_text(f'{{"version":0,"brokerEpoch":{epoch}}}')


def without_marker(node: Path) -> None:
    (node / ".kafka_cleanshutdown").unlink()


def not_assigned(node: Path) -> None:
    """A partition of node 1 of which node 2 is no replica."""
    shutil.copytree(CLUSTER / "node1" / "shrink-0", node / "shrink-0")


REJECTED = {
    # What no lost record can mend: with the whole log, and with each that lost its end.
    "topic that was deleted": ("node1", with_topic_id(ID_OF_A_DELETED_TOPIC), "REJECTED(R5)", "orders"),
    "directory that was never registered": ("node2", with_directory_id, "REJECTED(R4)", "orders"),
    "marker of an earlier registration": ("node2", with_marker_of(16), "REJECTED(R10)", "orders"),
}
BROKEN_SO_FAR = {
    # What a lost record could mend: rejected with the whole log, and nothing is written with one that lost its end.
    "topic id that no record has": ("node1", with_topic_id(ID_OF_NO_RECORD), "R5", "orders"),
    "topic whose records retention removed": ("node2", with_topic_id(ID_OF_A_DELETED_TOPIC), "R5", "orders"),
    "not assigned": ("node2", not_assigned, "R6", "shrink"),
    "RECOVERING": ("node2", whole, "R8", "single"),
}
HEALTHY: dict[str, Change] = {"as it stopped": whole, "killed": without_marker}


def verdict_of(node: Path, topic: str) -> SourceVerdict:
    question = SourceQuestion(paths=(str(node / f"{topic}-0"),), purpose=Purpose.REBUILD)
    (replica,) = check_sources(question, Run(clock=Clock(NOW_MS, DEFAULT_EXPIRATION_MS), jobs=1)).replicas
    return replica.verdict


def node_with(to: Path, name: str, *changes: Change) -> Path:
    node = Path(shutil.copytree(CLUSTER / name, to / name))
    for change in changes:
        change(node)
    return node


@pytest.mark.parametrize("loss", [whole, unclosed, cut], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", REJECTED)
def test_what_no_lost_record_can_mend_stays_rejected(name: str, loss: Change, tmp_path: Path) -> None:
    node, change, expected, topic = REJECTED[name]
    assert str(verdict_of(node_with(tmp_path, node, change, loss), topic)) == expected


@pytest.mark.parametrize("loss", [whole, unclosed, cut], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", BROKEN_SO_FAR)
def test_what_a_lost_record_could_mend_is_not_written_to(name: str, loss: Change, tmp_path: Path) -> None:
    node, change, rule, topic = BROKEN_SO_FAR[name]
    verdict = verdict_of(node_with(tmp_path, node, change, loss), topic)
    assert str(verdict) == (f"REJECTED({rule})" if loss is whole else f"UNKNOWN({rule})")
    refusal = verdict.in_place_refusal("x")
    assert refusal is not None
    assert refusal.severity.name == "REFUSED"


@pytest.mark.parametrize("loss", [whole, unclosed, cut], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_replicas_are_written_to(name: str, loss: Change, tmp_path: Path) -> None:
    """A snapshot describes local bytes, and no record speaks against the replica: that it is unknown is a finding, no refusal."""
    verdict = verdict_of(node_with(tmp_path, "node2", HEALTHY[name], loss), "orders")
    assert verdict.in_place_refusal("x") is None


def test_a_deleted_topic_is_proven_after_an_unclean_stop(tmp_path: Path) -> None:
    """The own log may have lost its end then; that its records have the deletion is enough."""
    node = node_with(tmp_path, "node1", without_marker, with_topic_id(ID_OF_A_DELETED_TOPIC))
    assert str(verdict_of(node, "orders")) == "REJECTED(R5)"
    (node / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID_OF_NO_RECORD}")
    unproven = verdict_of(node, "orders")
    assert unproven.in_place_refusal("x") is not None


def test_the_tables_hold_faults_and_healthy_forms() -> None:
    assert (len(REJECTED), len(BROKEN_SO_FAR), len(HEALTHY)) == (3, 4, 2)
