"""Scenarios: small ones counted by hand, long and dense ones, and files that are wrong."""

import pytest

from snaprebuild.cluster.quorum.log_start import FollowerMode, Policy
from snaprebuild.errors import UsageError
from snaprebuild.simulations.metadata_log import simulation as log_start_simulation
from snaprebuild.simulations.metadata_log.scenario import read_scenario
from snaprebuild.simulations.metadata_log.simulation import PolicyRun, simulate

MINUTE_MS = 60_000

HEAD = """
duration = "5h"
[nodes]
checkpoint_interval = "1h"
checkpoint_bytes = 1000
segment_bytes = 7200
[config]
metadata.max.retention.bytes = 12000
metadata.start.offset.lag.time.max.ms = "90m"
[[append]]
every = "1m"
records = 2
bytes = 120
"""
"""Two records a minute, so a checkpoint at 122 after an hour (61 batches, the first at 0), 242, 362, 482; a segment is an hour."""


def played(text: str, policy: Policy, mode: FollowerMode = FollowerMode.STRICT) -> PolicyRun:
    return simulate(read_scenario(text.encode(), "scenario.toml"), policy, mode, samples=5)


def moves(run: PolicyRun, node: str = "leader") -> list[tuple[int, int]]:
    """Minutes and starts."""
    return [(step.time_ms // MINUTE_MS, step.after.offset) for step in run.moves if step.node == node]


def test_immediate() -> None:
    run = played(HEAD, Policy.IMMEDIATE)
    assert moves(run) == [(60, 122), (120, 242), (180, 362), (240, 482)]
    assert run.checkpoints == 4
    assert [each.end_offset for each in run.samples] == [122, 242, 362, 482, 600]
    assert [each.start_offset for each in run.samples] == [122, 242, 362, 482, 482]


def test_retention_by_size_at_the_next_look() -> None:
    """At an hour each minute has brought 120 bytes: 75 minutes and one checkpoint make 10,120. The second checkpoint is at two hours."""
    run = played(HEAD, Policy.RETENTION)
    # 120 minutes: 121 batches and two checkpoints, 16,520 bytes; the move deletes a segment of 60 batches and a checkpoint.
    assert moves(run)[0] == (120, 242)
    assert run.moves[0].deleted_bytes == 2 * 7200 + 1000
    assert run.peak_bytes == 16_520


def test_a_listener_and_a_live_replica_hold_the_seed_back_and_a_stopped_one_does_not() -> None:
    text = HEAD + '[[replica]]\nid = 2\ndown = [["30m", "230m"]]\n[[listener]]\nname = "slow"\nstuck = [["70m", "130m"]]\n'
    run = played(text, Policy.KAFKA_14932)
    # At 60 the batch of that minute comes before the look; from 70 to 130 the listener stays at 142.
    assert moves(run) == [(60, 122), (130, 242), (180, 362), (240, 482)]
    assert run.replicas_invalidated == {"2": 1}, "it was stopped at 62"
    assert run.listeners_reloaded == {"leader/slow": 0}
    assert [(step.time_ms // MINUTE_MS, step.invalidated) for step in run.moves if step.invalidated] == [(60, ("2",))]
    costly = played(text, Policy.IMMEDIATE)
    assert costly.listeners_reloaded == {"leader/slow": 1}, "at 120 it is at 142"


def test_the_seed_waits_no_longer_than_the_lag_time() -> None:
    run = played(HEAD + '[[replica]]\nid = 2\nstuck = [["30m", "6h"]]\n', Policy.KAFKA_14932)
    assert moves(run) == [(150, 122), (210, 242), (270, 362)]
    assert {step.cause.value for step in run.moves} == {"lag-time-max"}
    assert run.replicas_invalidated == {"2": 1}


def test_followers_run_ahead_of_a_leader_unless_they_wait() -> None:
    """A follower that takes its checkpoints between those of its leader."""
    text = HEAD + '[[replica]]\nid = 2\ncheckpoint_shift = "30m"\n'
    immediate = played(text, Policy.IMMEDIATE)
    # It was given the checkpoint of one hour when it looked; its own is due half an hour later.
    assert immediate.follower_ahead > 0
    for mode in FollowerMode:
        seed = played(text, Policy.KAFKA_14932, mode)
        assert seed.follower_ahead == 0
        assert moves(seed, "2"), "and it does move"
        assert seed.starts["2"].offset <= seed.starts["leader"].offset
    assert {start for _, start in moves(seed, "2")} <= {start for _, start in moves(seed)}, "literally to the leader's"


def test_the_start_has_the_epoch_of_the_record_before_it() -> None:
    run = played('elections = ["61m", "3h"]\n' + HEAD, Policy.IMMEDIATE)
    assert [(step.after.offset, step.after.epoch) for step in run.moves] == [(122, 1), (242, 2), (362, 3), (482, 3)]


def test_an_empty_replica_gets_a_checkpoint_whatever_the_policy() -> None:
    text = HEAD + '[[replica]]\nid = 2\ndown = [[0, "100m"]]\n[[listener]]\nname = "b"\nnode = 2\n'
    for policy in Policy:
        run = played(text, policy)
        assert (run.replicas_loaded, run.replicas_invalidated["2"]) == ({"2": 1}, 0)


def test_a_slow_reader_reads_no_faster_than_it_says() -> None:
    """One record a minute and a half of two a minute."""
    text = HEAD + '[[listener]]\nname = "slow"\nstuck = [[0, "2h"]]\n'
    fast, slow = (
        played(text, Policy.KAFKA_14932),
        played(text.replace("stuck", "records_per_second = 1\nstuck"), Policy.KAFKA_14932),
    )
    assert moves(fast)[0] == (120, 242)
    # At 121 minutes it has read 60 records, at 123 past 122, at 125 past 242.
    assert moves(slow)[:2] == [(123, 122), (125, 242)]


@pytest.mark.parametrize(
    ("policy", "seconds"), [pytest.param(Policy.KAFKA_14932, 6_000, marks=pytest.mark.full), (Policy.RETENTION, 2_000)]
)
def test_a_dense_scenario_keeps_little(policy: Policy, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches each between two looks of the cleaner, and a checkpoint for each tenth: up to 25,000 events."""
    monkeypatch.setattr(log_start_simulation, "MOVES_MAX", 1000)
    text = f"""
    duration = "{seconds}s"
    [config]
    metadata.max.retention.bytes = 100000
    [nodes]
    clean_interval = "1s"
    checkpoint_interval = "5s"
    checkpoint_bytes = 100
    segment_bytes = 1000
    [[append]]
    every = "1s"
    [[append]]
    from = "500ms"
    every = "1s"
    [[replica]]
    id = 2
    """
    run = played(text, policy)
    assert run.end_offset == 2 * seconds
    assert run.checkpoints == seconds // 5 - 1
    assert run.events > 2 * seconds
    assert len(run.moves) == min(run.move_count, 1000)
    assert (run.move_count > 1000) == (policy is Policy.KAFKA_14932)
    assert run.peak_bytes < 110_000


def test_a_long_scenario_of_one_writer_is_few_events() -> None:
    """63 million batches of an idle year are not looked at one by one."""
    run = played('duration = "365d"\n[[append]]\nevery = "500ms"\n', Policy.IMMEDIATE)
    assert run.end_offset == 365 * 86_400 * 2
    assert run.events < 20_000
    assert run.checkpoints == 365 * 24 - 1


# -------------------------------------------------------------------------------------------------------------- wrong files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "object missing required field `duration`"),
        ("duration = 1.5", "duration: expected a time like"),
        ("duration = '101y'", "found '101y'"),
        ("duration = " + "9" * 5000, "is not TOML"),
        ("duration = '1h'\nelections = ['30m', '10m']", "elections: expected ascending times"),
        ("duration = '1h'\nwhat = 1", "object contains unknown field `what`"),
        ("duration = '1h'\n[config]\n'metadata.max.retention.ms' = -2", "config.metadata.max.retention.ms: expected a time"),
        ("duration = '1h'\n[nodes]\nsegment_bytes = 0", "nodes.segment_bytes: expected `int` >= 1"),
        ("duration = '1h'\n[[append]]\nevery = 0", "append[0].every: expected a time"),
        ("duration = '1h'\n[[append]]\nevery = '1s'\nfrom = '2h'", "append[0].from: expected a time"),
        ("duration = '1h'\n[[replica]]\nid = 2\n[[replica]]\nid = '2'", "replica: expected names that differ"),
        ("duration = '1h'\n[[replica]]\nid = 2\ndown = [['3m', '2m']]", "replica[0].down[0]: expected a time that ends after"),
        ("duration = '1h'\n[[replica]]\nid = 2\ndown = [['3m', '6m'], ['5m', '7m']]", "replica: expected spans in order"),
        (
            "duration = '1h'\n[[append]]\nevery = '1s'\nbytes = 200\n[nodes]\nsegment_bytes = 100",
            "append[0].bytes: expected a whole number",
        ),
        ("duration = '1h'\n[[replica]]\nid = 'a b'", "replica[0].id: expected a name"),
        ("duration = '1h'\n[[listener]]\nname = 'x'\nnode = 7", "listener[0].node: expected one of leader, found '7'"),
        (
            "duration = '1h'\n[[listener]]\nname = 'x'\n[[listener]]\nname = 'x'",
            "listener: expected names that differ on each node",
        ),
    ],
)
def test_a_wrong_file_is_reported_by_place(text: str, said: str) -> None:
    with pytest.raises(UsageError) as reported:
        read_scenario(text.encode(), "s.toml")
    assert str(reported.value).startswith("s.toml: ")
    assert said in str(reported.value)


def test_long_strings_and_comments_are_no_long_words() -> None:
    long, dots = "a" * 150, "a." * 5_000
    text = f"""# '{dots}
title = "{long}\\"\\\\ # "
duration = '1h' # {dots}{long}
[config]
'metadata.max.retention.ms' = '1h'
"""
    found = read_scenario(text.encode(), "s.toml")
    assert (found.title, found.duration_ms, found.settings.retention_ms) == (long + '"\\ # ', 3_600_000, 3_600_000)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(UsageError, match="is not text in UTF-8: byte 2"):
        read_scenario(b"a=\xff", "s.toml")


def test_more_events_than_anybody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_start_simulation, "EVENTS_MAX", 1000)
    text = 'duration = "36500d"\n[nodes]\nclean_interval = "1s"\n'
    with pytest.raises(UsageError, match="more than 1000 events") as reported:
        played(text, Policy.KAFKA_14932)
    assert "make it shorter" in str(reported.value)
