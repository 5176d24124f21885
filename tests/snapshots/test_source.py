"""Where a verb reads from: paths, configurations, forms of directories, kinds of topics."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from log_dirs import batch, copy_of, make_log_dir, write_partition
from manifests import FIXTURES

from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, exit_code_of
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import Source, check_segments_are_files, open_source
from snaprebuild.storage import log_dir
from snaprebuild.storage.partition_names import TopicKind


def names(source: Source) -> list[str]:
    return [partition.directory.topic_partition for partition in source.partitions]


def test_any_ancestor_leads_to_the_partitions(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    expected = ["deleted-0", "logappend-0", "mixed-0", "plain-0"]
    for path in (logs, tmp_path, tmp_path.parent / tmp_path.name):
        source = open_source([str(path)])
        assert names(source) == expected
        assert source.findings == ()
        assert [state.path for state in source.log_dirs] == [str(logs)]
    assert [partition.relative for partition in open_source([str(tmp_path)]).partitions] == [
        f"kafka27-mixed/{name}" for name in expected
    ]
    (named,) = open_source([str(logs / "mixed-0")]).partitions
    assert named.relative == "."
    assert named.log_dir.was_shut_down_cleanly, "the log directory around it is looked at"


@pytest.mark.parametrize("path", ["nowhere", "file"])
def test_paths_that_are_none(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(UsageError, match=r"does not exist|is no directory"):
        open_source([str(tmp_path), str(tmp_path / path)])
    with pytest.raises(UsageError, match="name at least one path"):
        open_source([])


def test_kinds_of_topics(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs", cleaner_offset_checkpoint="0\n1\ncompact 0 5\n")
    kinds = {
        "plain-0": TopicKind.ORDINARY,
        "compact-0": TopicKind.ORDINARY,
        "__consumer_offsets-49": TopicKind.INTERNAL,
        "__transaction_state-1": TopicKind.INTERNAL,
        "__share_group_state-0": TopicKind.INTERNAL,
        "__remote_log_metadata-3": TopicKind.REMOTE_LOG_METADATA,
        "__cluster_metadata-0": TopicKind.CLUSTER_METADATA,
        "__my_own-0": TopicKind.ORDINARY,
    }
    for name in kinds:
        write_partition(logs / name, {0: batch(0)})
    source = open_source([str(logs)])
    assert {partition.directory.topic_partition: partition.topic_kind for partition in source.partitions} == kinds
    assert [partition.directory.topic_partition for partition in source.partitions if partition.is_compacted] == ["compact-0"]


def test_what_the_files_of_the_broker_say(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    by_name = {partition.directory.topic_partition: partition for partition in open_source([str(logs)]).partitions}
    assert (by_name["deleted-0"].log_start_offset, by_name["deleted-0"].recovery_point) == (298, 997)
    assert (by_name["mixed-0"].log_start_offset, by_name["mixed-0"].recovery_point) == (0, 8231)
    bare = write_partition(tmp_path / "bare" / "t-0", {70: batch(70)})
    (partition,) = open_source([str(bare)]).partitions
    assert (partition.log_start_offset, partition.recovery_point) == (70, 0)
    assert not partition.log_dir.is_broker_directory


@pytest.mark.parametrize(
    ("checkpointed", "clean", "epochs", "expected"),
    [
        (None, True, None, (False, 70)),
        # Written without remote storage, too: records were deleted inside the first segment.
        (90, True, "0 90", (False, 90)),
        (90, False, "0 0", (False, 90)),
        # Written with remote storage only.
        (70, False, None, (True, 70)),
        (30, True, None, (True, 30)),
        # Left by a killed broker that may have deleted segments since.
        (30, False, "0 69\n1 80", (True, 30)),
        (30, False, "0 70\n1 80", (False, 70)),
        (30, False, None, (False, 70)),
        (30, False, "no epochs", (False, 70)),
    ],
)
def test_what_the_checkpointed_log_start_says(
    checkpointed: int | None, clean: bool, epochs: str | None, expected: tuple[bool, int], tmp_path: Path
) -> None:
    """``LogManager.checkpointLogStartOffsetsInDir`` defines when it is written, ``LogLoader.load`` how it is used."""
    lines = [] if checkpointed is None else [f"{topic} 0 {checkpointed}\n" for topic in ("t", "compact", "__consumer_offsets")]
    logs = make_log_dir(
        tmp_path / "logs",
        clean=clean,
        log_start_offset_checkpoint=f"0\n{len(lines)}\n" + "".join(lines),
        cleaner_offset_checkpoint="0\n1\ncompact 0 5\n",
    )
    for name in ("t-0", "compact-0", "__consumer_offsets-0"):
        write_partition(logs / name, {70: batch(70)})
        if epochs is not None:
            (logs / name / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs.splitlines())}\n{epochs}\n")
    internal, compacted, ordinary = open_source([str(logs)]).partitions
    assert (ordinary.is_tiered, ordinary.log_start_offset) == expected
    for never in (internal, compacted):
        assert (never.is_tiered, never.log_start_offset) == (False, max(checkpointed or 0, 70))


def test_log_start_of_a_partition_without_segments(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs", log_start_offset_checkpoint="0\n2\na 0 0\nb 0 30\n")
    for name in ("a-0", "b-0", "c-0"):
        write_partition(logs / name, {})
    partitions = open_source([str(logs)]).partitions
    assert [(each.is_tiered, each.log_start_offset) for each in partitions] == [(False, 0), (False, 30), (False, 0)]


def test_remote_storage_of_the_bundled_directories() -> None:
    """One had just been switched on, and nothing was deleted locally; of the other the data below the first segment is in the tier."""
    for name, log_start, first_base in (("tiered-local", 0, 0), ("follower-lost-state/node2", 0, 561)):
        (tiered,) = [each for each in open_source([str(FIXTURES / name)]).partitions if each.is_tiered]
        assert (tiered.log_start_offset, tiered.directory.segments[0].base_offset) == (log_start, first_base)
    assert not any(each.is_tiered for each in open_source([str(FIXTURES / "kafka4-mixed")]).partitions)


def test_files_of_the_broker_that_do_not_parse(tmp_path: Path) -> None:
    """They count as absent, which is the careful way: no clean stop is proven by them, and no recovery point."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "recovery-point-offset-checkpoint").write_text("0\n9\nmixed 0 8231\n")
    (logs / "log-start-offset-checkpoint").mkdir() if not (logs / "log-start-offset-checkpoint").unlink() else None
    source = open_source([str(logs)])
    assert {finding.code for finding in source.findings} == {"unreadable-broker-file"}
    assert len(source.findings) == 2
    assert exit_code_of(source.findings) == 1
    assert all(partition.recovery_point == 0 for partition in source.partitions)


def test_forms_of_directories(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    unique = "0123456789abcdef0123456789abcdef"
    for name in (f"a-0.{unique}-delete", f"b-0.{unique}-stray", f"c-0.{unique}-future", "d-0"):
        write_partition(logs / name, {0: batch(0)})
    write_partition(logs / "e-0", {0: batch(0)})
    (logs / "e-0" / f"{0:020d}.log.swap").write_bytes(b"")
    write_partition(logs / "f-0", {0: batch(0)})
    (logs / "f-0" / f"{0:020d}.log.deleted").write_bytes(b"")
    source = open_source([str(logs)])
    assert names(source) == ["d-0", "f-0"]
    assert sorted((finding.code, finding.severity) for finding in source.findings) == [
        ("delete-directory", Severity.NOTE),
        ("future-directory", Severity.NOTE),
        ("interrupted-compaction", Severity.FINDING),
        ("stray-directory", Severity.FINDING),
    ]
    named = open_source([str(logs / f"a-0.{unique}-delete"), str(logs / "e-0"), str(logs / "d-0")])
    assert names(named) == ["d-0"]
    assert {finding.severity for finding in named.findings} == {Severity.REFUSED}
    # What is not selected is not reported.
    assert open_source([str(logs)], None, Selection(topics=("d",))).findings == ()


def test_selection() -> None:
    paths = [str(FIXTURES / "txn-state"), str(FIXTURES / "kafka27-mixed")]
    assert names(open_source(paths, None, Selection(("__consumer*",)))) == ["__consumer_offsets-0", "__consumer_offsets-1"]
    assert names(open_source(paths, None, Selection(("__*",), frozenset({1})))) == ["__consumer_offsets-1", "__transaction_state-1"]
    assert names(open_source(paths, None, Selection(("MIXED",)))) == []
    selection = Selection(offset_from=5, offset_to=7)
    assert [selection.takes_boundary(offset) for offset in (4, 5, 7, 8)] == [False, True, True, False]


def test_a_directory_that_is_reached_twice(tmp_path: Path) -> None:
    logs = copy_of("magicup", tmp_path)
    (tmp_path / "link").symlink_to(logs)
    (logs / "loop").symlink_to(tmp_path)
    source = open_source([str(logs), str(tmp_path / "link"), str(logs / "magicup-0")])
    assert names(source) == ["magicup-0"]
    assert {finding.code for finding in source.findings} == {"duplicate-path"}
    (tmp_path / "server.properties").write_text(f"log.dirs={logs}\n")
    source = open_source([str(tmp_path / "link")], str(tmp_path / "server.properties"))
    assert names(source) == ["magicup-0"]
    assert not [finding for finding in source.findings if finding.path != str(logs / "loop")], (
        "the commands after an undo name both"
    )
    assert exit_code_of(source.findings) == 0


def test_a_directory_that_we_may_not_list(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may list everything")
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0").chmod(0)
    source = open_source([str(logs)])
    (logs / "mixed-0").chmod(0o755)
    assert names(source) == ["deleted-0", "logappend-0", "plain-0"]
    assert exit_code_of(source.findings) == 5


@pytest.mark.parametrize("suffix", [".log", ".snapshot", ".txnindex"])
def test_what_is_no_file(suffix: str, tmp_path: Path) -> None:
    """Only a segment that is no file puts a hole into the log."""
    partition = write_partition(tmp_path / "t-0", {0: batch(0), 2: batch(2)})
    (partition / f"{1:020d}{suffix}").symlink_to(partition / f"{0:020d}.log")
    (source,) = open_source([str(partition)]).partitions
    assert [segment.base_offset for segment in source.directory.segments] == [0, 2]
    if suffix == ".log":
        with pytest.raises(ReadFailedError, match="is not a regular file"):
            check_segments_are_files(source.directory)
    else:
        check_segments_are_files(source.directory)


# --- server.properties -----------------------------------------------------------------------------------------------------


def test_a_configuration_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_source([], str(tmp_path / "absent"))
    (tmp_path / "server.properties").write_text("log.dirs=/nowhere/at/all\n")
    with pytest.raises(UsageError, match="/nowhere/at/all: does not exist"):
        open_source([], str(tmp_path / "server.properties"))
    (tmp_path / "server.properties").write_text("log.dirs=\\u12\n")
    with pytest.raises(UsageError):
        open_source([], str(tmp_path / "server.properties"))


def properties_of(tmp_path: Path, *log_dirs: Path) -> str:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={','.join(map(str, log_dirs))}\n")
    return str(path)


OFFLINE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _path: None, "does not exist"),
    "file": (lambda path: path.write_bytes(b""), "is no directory"),
    "dangling": (lambda path: path.symlink_to("nowhere"), "does not exist"),
    "circle": (lambda path: path.symlink_to(path.name), "cannot be accessed: Too many levels of symbolic links"),
}


@pytest.mark.parametrize("kind", OFFLINE)
def test_a_log_dir_that_is_offline(kind: str, tmp_path: Path) -> None:
    """A broker marks it offline and continues with the others (``LogManager.createAndValidateLogDirs``)."""
    logs, offline = copy_of("kafka27-mixed", tmp_path), tmp_path / "disk2"
    make, fault = OFFLINE[kind]
    make(offline)
    other = write_partition(make_log_dir(tmp_path / "disk3") / "t-0", {0: batch(0)}).parent
    source = open_source([], properties_of(tmp_path, offline, logs, other))
    assert names(source) == ["t-0", "deleted-0", "logappend-0", "mixed-0", "plain-0"]
    (finding,) = source.findings
    assert (finding.code, finding.severity, finding.path) == ("offline-log-dir", Severity.STORAGE, str(offline))
    assert finding.message.startswith(fault)
    assert exit_code_of(source.findings) == 5
    # A path that was named is no log.dirs, and where none is left there is nothing to go on with.
    with pytest.raises(UsageError, match=fault):
        open_source([str(logs), str(offline)])
    for paths in ([], [str(logs)]):
        with pytest.raises(UsageError, match=fault):
            open_source(paths, properties_of(tmp_path, offline, offline))


def test_every_log_dir_that_is_offline_is_reported(tmp_path: Path) -> None:
    logs = copy_of("magic0", tmp_path)
    source = open_source([], properties_of(tmp_path, tmp_path / "a", logs, tmp_path / "b"))
    assert names(source) == ["magic0-0"]
    assert [(finding.code, finding.path) for finding in source.findings] == [
        ("offline-log-dir", str(tmp_path / "a")),
        ("offline-log-dir", str(tmp_path / "b")),
    ]


def test_a_log_dir_on_a_dead_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, and cannot be listed. All of them so: every one is reported, and nothing was found."""
    logs, dead = copy_of("magic0", tmp_path), make_log_dir(tmp_path / "dead")
    write_partition(dead / "t-0", {0: batch(0)})
    listed = log_dir.entries_of

    def fails(path: str, what: str) -> object:
        if path == str(dead):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return listed(path, what)

    monkeypatch.setattr(log_dir, "entries_of", fails)
    source = open_source([], properties_of(tmp_path, logs, dead))
    assert names(source) == ["magic0-0"]
    (finding,) = source.findings
    assert (finding.code, finding.path) == ("offline-log-dir", str(dead))
    assert "cannot be listed: Input/output error" in finding.message
    assert {each.code for each in open_source([], properties_of(tmp_path, dead)).findings} == {"offline-log-dir"}
    assert {each.code for each in open_source([str(dead)]).findings} == {"storage-failed"}


def test_one_partition_in_two_directories(tmp_path: Path) -> None:
    """Copies and replicas have equal names; one broker does not start with a partition in two of its log directories."""
    one, two, copy = (make_log_dir(tmp_path / name) for name in ("one", "two", "copy"))
    for logs in (one, two, copy):
        write_partition(logs / "t-0", {0: batch(0)})
    write_partition(two / "t-1", {0: batch(0)})
    write_partition(one / f"t-1.{'0' * 32}-future", {0: batch(0)})
    apart = open_source([str(one), str(two), str(copy)])
    assert names(apart) == ["t-0", "t-0", "t-0", "t-1"]
    assert [finding.code for finding in apart.findings] == ["future-directory"]
    (tmp_path / "link").symlink_to(one)
    together = open_source([str(copy)], properties_of(tmp_path, tmp_path / "link", two))
    assert names(together) == ["t-0", "t-0", "t-0", "t-1"]
    (finding,) = [each for each in together.findings if each.code == "partition-in-two-log-dirs"]
    assert finding.severity is Severity.DAMAGED
    assert {finding.path, finding.message.split()[3].rstrip(":")} == {str(tmp_path / "link" / "t-0"), str(two / "t-0")}


# --- exit codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("severities", "code"),
    [
        ((Severity.NOTE,), 0),
        ((Severity.FINDING, Severity.NOTE), 1),
        ((Severity.FINDING, Severity.DAMAGED), 4),
        ((Severity.DAMAGED, Severity.REFUSED), 3),
        ((Severity.REFUSED, Severity.STORAGE, Severity.DAMAGED), 5),
    ],
)
def test_the_worst_of_all(severities: tuple[Severity, ...], code: int) -> None:
    assert exit_code_of(Finding("x", severity, "/", "") for severity in severities) == code
