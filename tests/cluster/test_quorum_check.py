"""Checks of metadata logs that change while they are read; test_quorum_rules.py has the rules."""

import os
from pathlib import Path

import pytest
from metadata_dirs import checkpoint_name, metadata_copy

from snaprebuild.cluster.metadata.log import MetadataLog, open_metadata_log
from snaprebuild.cluster.quorum import facts as reading
from snaprebuild.cluster.quorum.check import check_quorum
from snaprebuild.cluster.rule_result import RuleState
from snaprebuild.findings import exit_code_of
from snaprebuild.storage.store import S3Settings


def test_what_is_deleted_after_the_listing_is_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner of a live node goes by twice: once it takes checkpoints, once a segment with those below it."""
    directory = metadata_copy("kraft-metadata-moved", tmp_path)
    steps = [
        [checkpoint_name(640, 4), checkpoint_name(660, 4)],
        [f"{538:020d}.log", *(checkpoint_name(at, 4) for at in (680, 700))],
    ]

    def listed(location: str, settings: S3Settings) -> MetadataLog:
        log = open_metadata_log(location, settings)
        if steps:
            for name in steps.pop(0):
                os.unlink(directory / name)
            epoch = "0\n1\n4 680\n" if steps else "0\n1\n4 720\n"
            (directory / "leader-epoch-checkpoint").write_text(epoch)
        return log

    monkeypatch.setattr(reading, "open_metadata_log", listed)
    check = check_quorum([str(directory)])
    assert check.findings == []
    (node,) = check.nodes
    assert [each.id.offset for each in node.node.facts.checkpoints] == [720, 740, 760, 812]
    assert (node.node.facts.start_offset, node.node.facts.first_base_offset) == (720, 720)
    assert {each.state for each in node.results} == {RuleState.HOLDS, RuleState.NOT_APPLICABLE}


def test_what_vanishes_each_time_is_left_out_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = metadata_copy("kraft-metadata", tmp_path)
    path = directory / checkpoint_name(42, 1)
    data = path.read_bytes()

    def listed(location: str, settings: S3Settings) -> MetadataLog:
        path.write_bytes(data)
        log = open_metadata_log(location, settings)
        path.unlink()
        return log

    monkeypatch.setattr(reading, "open_metadata_log", listed)
    check = check_quorum([str(directory)])
    assert [each.code for each in check.findings] == ["checkpoint-vanished"]
    assert exit_code_of(check.findings) == 0
    assert len(check.nodes[0].node.facts.checkpoints) == 11


def test_a_checkpoint_that_vanishes_before_it_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = metadata_copy("node1", tmp_path), metadata_copy("node3", tmp_path)
    read_node = reading.read_node

    def then_deleted(location: str, settings: S3Settings) -> reading.NodeFacts:
        node = read_node(location, settings)
        (Path(location) / checkpoint_name(76, 1)).unlink()
        return node

    monkeypatch.setattr("snaprebuild.cluster.quorum.check.read_node", then_deleted)
    check = check_quorum([str(one), str(other)])
    assert check.findings == []
    assert "was deleted while it was read" in "".join(each.evidence for node in check.nodes for each in node.results)
