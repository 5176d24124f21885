"""The fates of log directories and of the broker, by their small files."""

from pathlib import Path

import pytest
from log_dirs import make_log_dir

from formats.broker.broker_files import read_properties
from snaprebuild.broker.broker_facts import log_dir_facts, node_id_of, read_broker_facts
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.log_dir_fates import log_dir_fates, same_broker_fates
from snaprebuild.broker.start_facts import Shutdown
from snaprebuild.storage.log_dir import read_log_dir
from snaprebuild.storage.store_path import path_of

KRAFT = "version=1\nnode.id=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\n"
OFFSET_CHECKPOINTS = (
    *("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"),
    *("replication-offset-checkpoint", "cleaner-offset-checkpoint"),
)


def fates(root: Path, properties: str | None = None) -> list[Fate]:
    state = read_log_dir(path_of(str(root)))
    broker = read_broker_facts([state], None if properties is None else read_properties(properties.encode()))
    return log_dir_fates(log_dir_facts(state, Shutdown.CLEAN, 0), broker)


def kraft_dir(place: Path, meta: str = KRAFT) -> Path:
    root = make_log_dir(place)
    (root / "meta.properties").write_text(meta)
    return root


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n", "0\n1\nt 0 5\n"])
@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
def test_healthy_checkpoints(tmp_path: Path, name: str, text: str) -> None:
    root = kraft_dir(tmp_path)
    (root / name).write_text(text)
    assert fates(root) == []


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
def test_a_malformed_checkpoint_takes_its_directory_offline(tmp_path: Path, name: str) -> None:
    root = kraft_dir(tmp_path)
    (root / name).write_text("rubbish")
    (fate,) = fates(root)
    assert (fate.kind, fate.evidence) == (FateKind.OFFLINE, name)
    assert "shuts down" in fate.cause, "it is the only one"


@pytest.mark.parametrize(
    ("meta", "log_line"),
    [
        (None, "No `meta.properties` found"),
        ("", "node ID not found"),
        ("rubbish", "node ID not found"),
        ("version=9\n", "No readable"),
        (KRAFT, None),
    ],
)
def test_meta_properties_with_kraft(tmp_path: Path, meta: str | None, log_line: str | None) -> None:
    root = kraft_dir(tmp_path)
    path = root / "meta.properties"
    path.unlink()
    if meta is not None:
        path.write_text(meta)
    found = fates(root, "process.roles=broker\n")
    assert [fate.kind for fate in found] == ([] if log_line is None else [FateKind.NO_START])
    assert all(log_line is not None and log_line in fate.log_line for fate in found)
    if log_line is not None:
        assert fates(root) == [], "nothing shows that it is of KRaft"
        (root / "__cluster_metadata-0").mkdir()
        assert len(fates(root)) == 1


def test_zookeeper_writes_meta_properties_anew(tmp_path: Path) -> None:
    root = make_log_dir(tmp_path)
    assert fates(root) == []
    (root / "meta.properties").unlink()
    assert fates(root) == []


def test_a_directory_that_is_no_partition(tmp_path: Path) -> None:
    root = kraft_dir(tmp_path)
    for name in ("remote-log-index-cache", f"t-0.{'0' * 32}-delete", f"t-1.{'0' * 32}-future", f"t-2.{'0' * 32}-stray"):
        (root / name).mkdir()
    assert fates(root) == []
    (root / "lost+found").mkdir()
    (fate,) = fates(root)
    assert fate.kind is FateKind.NO_START
    assert "lost+found" in fate.detail


@pytest.mark.parametrize("name", ["remote-log-index-cache", f"t-2.{'0' * 32}-stray"])
def test_names_that_an_earlier_release_does_not_know(tmp_path: Path, name: str) -> None:
    root = kraft_dir(tmp_path)
    (root / name).mkdir()
    state = read_log_dir(path_of(str(root)))
    facts = log_dir_facts(state, Shutdown.CLEAN, 0)
    for release, starts in (((2, 8, 2), False), ((3, 4, 1), False), ((3, 6, 0), True), ((4, 4, 0), True), (None, True)):
        found = log_dir_fates(facts, read_broker_facts([state], None, release))
        assert [fate.kind for fate in found] == ([] if starts else [FateKind.NO_START])


def test_two_brokers_in_one_configuration(tmp_path: Path) -> None:
    one, two = kraft_dir(tmp_path / "d1"), kraft_dir(tmp_path / "d2")
    facts = [log_dir_facts(read_log_dir(path_of(str(each))), Shutdown.CLEAN, 0) for each in (one, two)]
    assert same_broker_fates(facts, 1) == []
    assert same_broker_fates(facts, None) == []
    (other,) = same_broker_fates(facts, 2)
    assert other.kind is FateKind.NO_START
    (two / "meta.properties").write_text(KRAFT.replace("node.id=1", "node.id=2").replace("5L6g", "6L6g"))
    facts[1] = log_dir_facts(read_log_dir(path_of(str(two))), Shutdown.CLEAN, 0)
    assert [fate.cause for fate in same_broker_fates(facts, 1)] == [
        "log directories of two clusters",
        "log directories of two brokers",
    ]


@pytest.mark.parametrize(
    ("text", "expected"), [("broker.id=3\n", 3), ("node.id=4\nbroker.id=3\n", 4), ("broker.id=-1\n", None), ("", None)]
)
def test_the_id_in_the_configuration(text: str, expected: int | None) -> None:
    assert node_id_of(read_properties(text.encode())) == expected


@pytest.mark.parametrize(
    ("meta", "properties", "first", "last"),
    [
        ("version=0\nbroker.id=1\n", "", (2, 8, 0), (3, 9, 99)),
        (KRAFT, "", (2, 8, 0), (4, 4, 99)),
        (f"{KRAFT}directory.id=1-fAsm5GQaGBh51Wys3Sww\n", "", (3, 7, 0), (4, 4, 99)),
        ("version=0\nbroker.id=1\n", "inter.broker.protocol.version=3.6-IV2\n", (3, 6, 0), (3, 9, 99)),
    ],
)
def test_releases_that_can_start_a_directory(
    tmp_path: Path, meta: str, properties: str, first: tuple[int, int, int], last: tuple[int, int, int]
) -> None:
    root = kraft_dir(tmp_path, meta)
    broker = read_broker_facts([read_log_dir(path_of(str(root)))], read_properties(properties.encode()))
    assert (broker.releases.first, broker.releases.last) == (first, last)
    given = read_broker_facts([read_log_dir(path_of(str(root)))], None, (3, 8, 1))
    assert given.releases.releases == ((3, 8, 1),)
