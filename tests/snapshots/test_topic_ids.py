"""Whether a broker is ready for remote storage, by the files of its next start: a table of faults next to one of healthy forms."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from log_dirs import batch, write_partition

from formats.partition.partition_metadata import ZERO_UUID, uuid_to_text
from snaprebuild.broker.remote_readiness import Readiness
from snaprebuild.findings import Severity
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.source.topic_ids import readiness_findings, topics_under_id_zero, with_readiness

ZOOKEEPER = "version=0\nbroker.id=1\ncluster.id=oPmDX1AuSamVuUQffb-GZA\n"
KRAFT = "version=1\nnode.id=1\ncluster.id=oPmDX1AuSamVuUQffb-GZA\n"
ID = "hVLXsV0ZSTSJwjeZBRZyLg"
ON = "remote.log.storage.system.enable=true\n"
ALL = ("orders-0", "orders-1", "old-0")
NONE = ()


@dataclass(frozen=True)
class Form:
    """The files of a broker.

    Attributes:
        properties: lines of ``server.properties``; None if it is not named.
        ids: partitions with an id.
        meta: text of ``meta.properties``; None if it is absent.
        remote: a partition of ``__remote_log_metadata`` is there.
        odd_id: text of the id of the other partitions; None for no file.
        partitions: names of their directories.
        checkpoint: ``replication-offset-checkpoint`` is there.
        compacted: topics with a checkpoint of the cleaner.
    """

    properties: str | None
    ids: tuple[str, ...]
    meta: str | None = ZOOKEEPER
    remote: bool = False
    odd_id: str | None = None
    partitions: tuple[str, ...] = ALL
    checkpoint: bool = True
    compacted: tuple[str, ...] = ()


def made(form: Form, tmp_path: Path) -> tuple[list[str], str | None]:
    """Makes the files; paths, and that of ``server.properties``."""
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    if form.meta is not None:
        (log_dir / "meta.properties").write_text(form.meta)
    if form.checkpoint:
        (log_dir / "replication-offset-checkpoint").write_text("0\n0\n")
    lines = "".join(f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} 1\n" for name in form.compacted)
    if form.compacted:
        (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n{len(form.compacted)}\n{lines}")
    for name in form.partitions:
        directory = write_partition(log_dir / name, {0: batch(0), 1: batch(1)})
        text = ID if name in form.ids else form.odd_id
        if text is not None:
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")
    if form.remote:
        (log_dir / "__remote_log_metadata-7").mkdir()
    if form.properties is None:
        return [str(log_dir)], None
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={log_dir}\n{form.properties}")
    return [], str(path)


BOTH = {"orders", "old"}

UNDER_ID_ZERO = {
    "protocol 2.7": (Form("inter.broker.protocol.version=2.7\n" + ON, NONE), BOTH),
    "a version of metadata": (Form("inter.broker.protocol.version=2.7-IV2\n" + ON, NONE), BOTH),
    "an old protocol": (Form("inter.broker.protocol.version=0.11.0\n" + ON, NONE), BOTH),
    "protocol 2.4 with blanks": (
        Form("inter.broker.protocol.version = 2.4 \nremote.log.storage.system.enable = TRUE \n", NONE),
        BOTH,
    ),
    "this start deletes the ids": (Form("inter.broker.protocol.version=2.7\n" + ON, ALL), BOTH),
    "ids not yet given": (Form("inter.broker.protocol.version=3.6\n" + ON, NONE, remote=True), BOTH),
    "one id not yet given": (Form("inter.broker.protocol.version=2.8-IV0\n" + ON, ("orders-0", "old-0"), remote=True), {"orders"}),
    "the protocol of the release": (Form(ON, ("orders-0", "orders-1"), remote=True), {"old"}),
    "no properties": (Form(None, NONE, remote=True), BOTH),
    "no properties, one partition": (Form(None, ("orders-0", "old-0"), remote=True), {"orders"}),
    "no properties, an empty file": (Form(None, ("orders-0",), remote=True, odd_id=""), BOTH),
    "no properties, id zero": (Form(None, ("orders-0",), remote=True, odd_id=uuid_to_text(ZERO_UUID)), BOTH),
    "no meta.properties": (Form(None, NONE, meta=None, remote=True), BOTH),
    "one topic is compacted": (Form("inter.broker.protocol.version=2.7\n" + ON, NONE, compacted=("old-0",)), {"orders"}),
}
"""Files of a broker, and the topics that it would upload under id zero."""

READY, OFF = Readiness.READY, Readiness.REMOTE_STORAGE_OFF
HEALTHY = {
    "2.8-IV0 with ids": (Form("inter.broker.protocol.version=2.8-IV0\n" + ON, ALL, remote=True), READY, None),
    "3.9 with ids": (Form("inter.broker.protocol.version=3.9\n" + ON, ALL), READY, None),
    "10.1 with ids": (Form("inter.broker.protocol.version=10.1\n" + ON, ALL), READY, None),
    "the protocol of the release": (Form(ON, ALL, remote=True), READY, None),
    "the controller decides": (Form("inter.broker.protocol.version=3.9\n" + ON, NONE), READY, "the controller must run"),
    "no properties, ids are the proof": (Form(None, ALL, remote=True), READY, None),
    "remote storage is off": (Form("inter.broker.protocol.version=2.7\n", NONE), OFF, "is 2.7: raise it to 2.8"),
    "remote storage is false": (
        Form("inter.broker.protocol.version=2.7\nremote.log.storage.system.enable=false\n", ALL),
        OFF,
        "is 2.7: raise it to 2.8",
    ),
    "remote storage is off, ids": (Form("inter.broker.protocol.version=3.9\n", ALL), OFF, None),
    "no properties, no ids": (Form(None, NONE), OFF, "2 topics without a topic id (old, orders)"),
    "no properties, not known to be ZooKeeper": (Form(None, NONE, meta=None), OFF, None),
    "nothing can be tiered": (
        Form("inter.broker.protocol.version=2.7\n" + ON, NONE, partitions=("__consumer_offsets-3",), remote=True),
        OFF,
        None,
    ),
    "KRaft": (Form(None, ALL, meta=KRAFT, remote=True), READY, None),
    "KRaft, a lost id is another fate": (Form(None, NONE, meta=KRAFT, remote=True), READY, None),
    "KRaft, an old key in the file": (
        Form("process.roles=broker\ninter.broker.protocol.version=2.7\n" + ON, ALL, meta=KRAFT, remote=True),
        READY,
        None,
    ),
    "KRaft, meta.properties lost": (Form("process.roles=broker,controller\n" + ON, NONE, meta=None, remote=True), READY, None),
    "KRaft, only the metadata log shows it": (
        Form(None, NONE, meta=None, remote=True, partitions=("orders-0", "__cluster_metadata-0")),
        READY,
        None,
    ),
}
"""Files of a broker, the judgement, and the note of a verb that writes."""


@pytest.mark.parametrize("name", UNDER_ID_ZERO)
def test_what_would_be_uploaded_under_id_zero(name: str, tmp_path: Path) -> None:
    form, topics = UNDER_ID_ZERO[name]
    source, (broker,) = with_readiness(open_source(*made(form, tmp_path)))
    assert broker.judged.readiness is Readiness.TOPIC_ID_ZERO
    assert topics_under_id_zero(source.partitions) == topics
    (finding,) = readiness_findings([broker], Severity.REFUSED, with_notes=True)
    assert (finding.code, finding.severity) == ("topic-id-zero", Severity.REFUSED)
    assert all(topic in finding.message for topic in topics)


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_ready_or_is_not_uploaded(name: str, tmp_path: Path) -> None:
    form, readiness, note = HEALTHY[name]
    source, (broker,) = with_readiness(open_source(*made(form, tmp_path)))
    assert broker.judged.readiness is readiness
    assert not topics_under_id_zero(source.partitions)
    found = readiness_findings([broker], Severity.REFUSED, with_notes=True)
    assert [(each.code, each.severity) for each in found] == ([("topic-id-missing", Severity.NOTE)] if note else [])
    assert readiness_findings([broker], Severity.REFUSED, with_notes=False) == []
    assert all(note in each.message for each in found if note)


def test_a_copy_of_partitions_belongs_to_no_broker(tmp_path: Path) -> None:
    form = Form(None, NONE, meta=None, remote=True, checkpoint=False)
    source, brokers = with_readiness(open_source(*made(form, tmp_path)))
    assert brokers == ()
    assert len(source.partitions) == 4


def test_directories_of_two_brokers_are_judged_apart_and_two_of_one_together(tmp_path: Path) -> None:
    """``__remote_log_metadata`` on one disk counts for the other disk of its broker, and not for another broker."""
    for name, node, remote in (("a1", 1, True), ("a2", 1, False), ("b", 2, False)):
        (tmp_path / name).mkdir()
        made(Form(None, NONE, meta=f"version=0\nbroker.id={node}\ncluster.id=x\n", remote=remote), tmp_path / name)
    source, brokers = with_readiness(open_source([str(tmp_path)]))
    assert {each.log_dirs: each.judged.readiness for each in brokers} == {
        (str(tmp_path / "a1/data"), str(tmp_path / "a2/data")): Readiness.TOPIC_ID_ZERO,
        (str(tmp_path / "b/data"),): Readiness.REMOTE_STORAGE_OFF,
    }
    assert {each.log_dir.path.split("/")[-2] for each in source.partitions if each.uploads_under_id_zero} == {"a1", "a2"}


def test_a_selection_does_not_hide_that_remote_storage_is_in_use(tmp_path: Path) -> None:
    made(Form(None, NONE, remote=True), tmp_path)
    source, (broker,) = with_readiness(open_source([str(tmp_path / "data/orders-1")]))
    assert broker.judged.topics == ("orders",)
    assert [each.directory.topic_partition for each in source.partitions] == ["orders-1"]
