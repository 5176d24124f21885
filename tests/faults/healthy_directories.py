"""Directories that real brokers left in health, and facts of them that findings rightly report: by the manifests, which Kafka's
classes wrote."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from manifests import FIXTURES

CLUSTER = "kraft-cluster3"
LOGS = (
    *(f"{name}/logs" for name in ("kafka27-mixed", "kafka27-killed", "kafka27-compacted", "magic0", "magic1", "magicup")),
    *(f"{name}/logs" for name in ("txn-state", "tiered-local", "kafka4-mixed", "kafka4-compacted", "txn-state4")),
    *(f"{name}/logs" for name in ("kraft-metadata", "kraft-metadata-moved")),
    "follower-lost-state/node1",
    *(f"{CLUSTER}/{name}" for name in ("node1", "node2", "node3", "old/node2-killed", "old/node3-clean-stopped")),
)
NOT_HEALTHY = {
    "damaged": "known corruptions, and control cases that were cut out of the others; test_known_corruptions.py runs over both",
    "follower-lost-state/node2": "the follower that lost its producers",
    "aiven-layout": "objects, and no log directories",
    "kafka27-moved-start": "no manifest: tests/snapshots/test_contradicted_base.py compares it with the broker's own snapshots",
    f"{CLUSTER}/old/node2-replaced-disk": "a disk that its broker has no more",
    f"{CLUSTER}/old/node3-old-topic": "a disk with topics that were deleted and made again while it was away",
}
REMOTE = {
    "tiered-local/logs": ("tiered-local/remote", "tiered-local/logs"),
    "follower-lost-state/node1": ("follower-lost-state/remote", "follower-lost-state/node1"),
}
"""Remote storage of log directories, and the metadata log that reports it."""
PLUGIN = tuple(
    f"aiven-layout/{name}/store"
    for name in (
        *("plain", "zstd", "zstd-heuristic", "zstd-one-chunk", "plain-chunks-api4"),
        *("encrypted", "encrypted-zstd", "custom-metadata", "epochs"),
    )
)


@functools.cache
def manifest_of(directory: str) -> dict[str, Any]:
    """The manifest of the fixture that a directory is part of."""
    found: dict[str, Any] = json.loads((FIXTURES / directory.partition("/")[0] / "manifest.json").read_text())
    return found


@functools.cache
def partitions_of(directory: str) -> dict[str, Any]:
    """The manifest's entry of each partition of a log directory."""
    manifest = manifest_of(directory)
    if directory.startswith(CLUSTER):
        return dict(manifest["directories"][directory.removeprefix(f"{CLUSTER}/")]["partitions"])
    return dict(manifest.get("partitions", {}))


def topic_partitions(directory: str) -> list[str]:
    """Partition directories that a broker serves, by their names on disk."""
    return sorted(path.name for path in (FIXTURES / directory).iterdir() if path.is_dir() and not path.name.endswith("-stray"))


def files(directory: str) -> list[Path]:
    return sorted(path for path in (FIXTURES / directory).rglob("*") if path.is_file())


# ---------------------------------------------------------------------------------------------------------------- what is so


Finding = dict[str, Any]


@dataclass(frozen=True)
class Truth:
    """Why a finding is none too many.

    Attributes:
        why: in words.
        holds: of a directory and the finding; by the manifest alone.
    """

    why: str
    holds: Callable[[str, Finding], bool]


def _manifest_of(directory: str, finding: Finding) -> dict[str, Any]:
    """The manifest's entry of the partition directory that a finding names."""
    reported: dict[str, Any] = partitions_of(directory)[Path(finding["path"]).name]
    return reported


def lacks_snapshots(reported: dict[str, Any]) -> bool:
    """At the end of a rolled segment the broker left none."""
    there = {int(name[:20]) for name in reported["broker_snapshots"]}
    return any(each["snapshot_offset"] not in there for each in reported["segments"][:-1])


def _is_old_format(reported: dict[str, Any]) -> bool:
    """A rolled segment holds messages of before 0.11."""
    return any(each["max_magic"] < 2 for each in reported["segments"][:-1])


def _has_open_transaction(reported: dict[str, Any]) -> bool:
    return any(each["current_txn_first_offset"] >= 0 for each in reported["segments"][-1]["entries"])


def _is_rejected(directory: str, finding: Finding, whose: str) -> bool:
    """By the verdict that the manifest holds: of the image at the moment of the copy, where the disk is a copy."""
    reported = _manifest_of(directory, finding)
    verdict = reported.get("verdict_image_at_copy", reported["verdict_final_image"])
    return str(verdict[whose]).startswith("REJECTED")


def _was_elected_uncleanly(directory: str, finding: Finding) -> bool:
    reported = manifest_of(directory)["directories"]["node2"]["partitions"]["single-0"]["verdict_final_image"]
    return finding["message"].startswith("single-0,") and reported["deciding_rule"] == "R8"


def _lost_with_its_disk(directory: str, finding: Finding) -> bool:
    nodes = manifest_of(directory)["directories"]
    before, after = (nodes[name]["partitions"]["single-0"]["batches"] for name in ("old/node2-replaced-disk", "node2"))
    return finding["path"] == "single" and before > 0 == after


def copies_of(directory: str) -> list[dict[str, Any]]:
    """The plugin's report of each copy in its store."""
    variants = json.loads((FIXTURES / "aiven-layout" / "plugin-reads.json").read_text())["variants"]
    return [each["metadata"] for each in variants[directory.split("/")[1]]["segments"]]


def _has_a_copy_alone(directory: str, finding: Finding) -> bool:
    """A copy of the topic begins above 0, and no other one is next to it: nothing in the store can prove or contradict it."""
    copies = [each for each in copies_of(directory) if f"({each['topic_id']})" in finding["path"]]
    inner = {each["start_offset"] for each in copies} & {each["end_offset"] + 1 for each in copies}
    alone = [each for each in copies if not {each["start_offset"], each["end_offset"] + 1} & inner]
    return any(each["start_offset"] > 0 for each in alone)


def _has_a_gap(directory: str, _: Finding) -> bool:
    """Copies of a topic that do not follow each other."""
    reported = copies_of(directory)
    found = sorted((each["topic_id"], each["partition"], each["start_offset"], each["end_offset"]) for each in reported)
    return any(one[:2] == next_[:2] and one[3] + 1 != next_[2] for one, next_ in pairwise(found))


def _is_kraft(directory: str, _: Finding) -> bool:
    return "version=1\n" in (FIXTURES / directory / "meta.properties").read_text()


def _lacks_metadata_log(directory: str, finding: Finding) -> bool:
    """The bundled directory is that of a KRaft node, and its metadata log was left out."""
    return _is_kraft(directory, finding) and not (FIXTURES / directory / "__cluster_metadata-0").exists()


def _may_be_an_old_copy(directory: str, finding: Finding) -> bool:
    """Nothing but a later metadata log would show that: it was killed, or its metadata log was left out."""
    was_killed = not (FIXTURES / directory / ".kafka_cleanshutdown").exists()
    return _lacks_metadata_log(directory, finding) or (_is_kraft(directory, finding) and was_killed)


def _ends_at_a_transaction(directory: str, finding: Finding) -> bool:
    reported = _manifest_of(directory, finding)
    entries = reported["log_end_entries"] if directory.startswith(CLUSTER) else reported["segments"][-1]["entries"]
    if any(each["current_txn_first_offset"] >= 0 for each in entries):
        return True
    topic, _, partition = Path(finding["path"]).name.rpartition("-")
    checkpoint = (FIXTURES / directory / "replication-offset-checkpoint").read_text().splitlines()
    (high_watermark,) = (int(line.split()[2]) for line in checkpoint[2:] if line.split()[:2] == [topic, partition])
    return high_watermark < int(reported["segments"][-1]["next_offset"])


def _begins_in_remote_storage(directory: str, finding: Finding) -> bool:
    """The first segment on the disk begins where the remote storage of the manifest's topic ends, and not at its log start."""
    first = int(min((FIXTURES / directory / Path(finding["path"]).name).glob("*.log")).stem)
    is_tiered = (FIXTURES / directory).parent.joinpath("remote").is_dir()
    return is_tiered and f"the first are 0 to {first - 1}" in finding["message"]


def _is_part_of_a_log(directory: str, finding: Finding) -> bool:
    of_store = directory in PLUGIN
    return _has_a_gap(directory, finding) if of_store else _begins_in_remote_storage(directory, finding)


_STRAY = Truth(
    "topics were deleted, made again or moved away while node 3 was down", lambda *of: not _manifest_of(*of)["plain_name"]
)
_GAP = Truth("the segments that the plugin uploaded are not neighbours", _has_a_gap)
_PHANTOM = Truth(
    "uploads of 3.9.2 that ended in the NullPointerException",
    lambda directory, finding: finding["message"].startswith(f"{manifest_of(directory)['counts']['phantoms']} copies "),
)
_ALONE = Truth("the plugin uploaded one segment of this topic, or some that are not neighbours", _has_a_copy_alone)
_LACKS = Truth("brokers of 2.7 wrote a snapshot at few boundaries", lambda *of: lacks_snapshots(_manifest_of(*of)))
_OLD = Truth("messages of before 0.11 have no leader epochs", lambda *of: _is_old_format(_manifest_of(*of)))
_UNFIT_FOR_REBUILD = Truth("the verdict of the manifest", lambda *of: _is_rejected(*of, "local_rebuild"))
_UNFIT_FOR_UPLOAD = Truth("the verdict of the manifest", lambda *of: _is_rejected(*of, "upload_source"))
_ALL_PARTITIONS = (
    *("scan", "plan", "verify", "rebuild", "stage", "inspect stats", "inspect transactions", "follower offsets"),
    *("inspect explain", "inspect records", "tier upload"),
)
TRUE: dict[tuple[str, str], Truth] = {
    **{(verb, "stray-directory"): _STRAY for verb in _ALL_PARTITIONS},
    ("scan", "missing-snapshots"): _LACKS,
    ("scan", "no-leader-epochs"): _OLD,
    ("fleet", "stuck-until-repaired"): Truth(
        "as scan says", lambda directory, _: any(map(lacks_snapshots, partitions_of(directory).values()))
    ),
    ("fleet", "stuck-for-good"): Truth(
        "as scan says", lambda directory, _: any(map(_is_old_format, partitions_of(directory).values()))
    ),
    ("inspect transactions", "late-transaction"): Truth("no one ended it", lambda *of: _has_open_transaction(_manifest_of(*of))),
    ("inspect records", "records-end-at-transaction"): Truth(
        "no one ended it, or its marker is above the high watermark", _ends_at_a_transaction
    ),
    ("inspect records", "records-without-high-watermark"): Truth(
        "brokers write none for a metadata log", lambda _, finding: Path(finding["path"]).name == "__cluster_metadata-0"
    ),
    ("inspect records", "records-lost"): Truth("the first ones, or those between copies, are elsewhere", _is_part_of_a_log),
    ("cluster source", "source-rejected"): _UNFIT_FOR_REBUILD,
    ("cluster source", "source-unknown"): Truth("a KRaft node has a metadata log", _lacks_metadata_log),
    ("tier upload", "source-unknown"): Truth("only a metadata log shows whether it is an old copy", _may_be_an_old_copy),
    ("fleet", "partition-not-scanned"): Truth(
        "other brokers lead them, or the metadata log alone is bundled",
        lambda directory, _: directory.startswith(CLUSTER) or not (partitions_of(directory).keys() - {"__cluster_metadata-0"}),
    ),
    ("fleet", "fleet-without-metadata"): Truth("only a metadata log shows the leaders", _is_kraft),
    ("tier upload", "source-rejected"): _UNFIT_FOR_UPLOAD,
    ("tier upload", "tier-upload-refused"): Truth(
        "2.7 knew no topic ids", lambda directory, _: manifest_of(directory)["kafka_version"] == "2.7.2"
    ),
    ("cluster isr", "isr-elected-new-disk"): Truth("its disk was replaced, and nobody else had it", _was_elected_uncleanly),
    ("fleet", "only-replica-empty"): Truth("its disk was replaced, and nobody else had it", _lost_with_its_disk),
    ("tier inventory", "tier-phantom"): _PHANTOM,
    ("tier metadata", "tier-phantom"): _PHANTOM,
    ("tier inventory", "tier-gap"): _GAP,
    ("tier metadata", "tier-gap"): _GAP,
    ("tier audit", "tier-gap"): _GAP,
    ("tier repair", "tier-gap"): _GAP,
    ("tier audit", "tier-unproven"): _ALONE,
    ("tier repair", "tier-unproven"): _ALONE,
}
"""By verb and code. Apart from notes, all else that a verb reports about these directories is a false alarm."""
