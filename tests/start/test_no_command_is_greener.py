"""No command is greener than what another one proves from the same files: over all states of the start, by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import in_json, snaprebuild
from start_states import STATES, StartState

VERBS = ("verify", "plan", "rebuild", "stage", "before-start", "cluster source")

NOTHING_IS_DUE = (
    "log-start-above-log-end",
    "log-start-above-log-end-killed",
    "high-watermark-above-log-end",
    "directory-listed-twice-by-link",
    "odd-directory",
    "odd-directory-lost-and-found",
    "odd-directory-with-dash",
    "odd-directory-hidden",
    "odd-directory-copy-suffix",
    "two-futures",
    "one-of-two-offline",
    "both-offline",
    "one-of-two-partitions-offline",
    "offline-and-no-start",
    "meta-properties-missing",
    "meta-properties-empty",
    "metadata-log-and-partitions",
    "upgrade-from-2-7",
    "transaction-index-version-1",
    "transaction-index-version-127",
    "transaction-index-version-1-killed",
    "transaction-index-bad-in-last-segment",
    "leader-epochs-empty-file",
    "leader-epochs-none",
    "leader-epochs-missing",
    "leader-epochs-empty-file-killed",
    "leader-epochs-missing-killed",
    "leader-epochs-garbage",
    "leader-epochs-fewer-than-counted",
    "leader-epochs-zeros",
    "leader-epochs-is-a-directory",
    "leader-epochs-newest-alone",
    "remote-log-start-above-log-end",
    "remote-all-logs-gone",
    "remote-index-missing",
    "last-segment-gone",
    "all-logs-gone",
    "partition-emptied",
    "partition-emptied-with-log-start",
    "partition-directory-empty",
    "log-name-no-number",
    "snapshot-name-no-number",
    "zeros-after-last-batch-clean",
    "last-segment-emptied-clean",
    "last-segment-emptied-killed",
    "recovery-point-above-log-end-killed",
    "topic-id-file-empty",
    "topic-id-file-one-line",
    "topic-id-no-uuid",
    "topic-id-zero",
    "topic-id-file-garbage",
    "topic-id-file-zero-bytes-only",
    "topic-id-file-is-a-directory",
    "topic-id-file-missing",
    "zookeeper-topic-id-file-empty",
    "topic-not-in-image-without-id",
    "deleted-partition-topic-id-file-empty",
    "deleted-partition-leader-epochs-garbage",
    "future-topic-id-file-empty",
    "future-leader-epochs-garbage",
    "future-zeros-at-end",
    "metadata-log-in-second-directory",
    "metadata-log-in-first-directory",
    "second-log-dir-empty",
    "meta-properties-same-directory-id",
    "leader-epochs-oldest-alone",
    "leader-epochs-descend",
    "leader-epochs-negative-epoch",
    "leader-epochs-negative-offset",
    "leader-epochs-begin-inside-the-first-segment",
    "metadata-dir",
    "metadata-dir-missing",
    "metadata-dir-empty",
    "metadata-dir-is-a-file",
    "metadata-dir-of-another-node",
    "metadata-dir-of-another-cluster",
    "metadata-dir-with-the-same-directory-id",
    "metadata-dir-with-empty-meta-properties",
    "metadata-dir-with-garbage",
    "log-dir-without-partitions-and-empty-meta-properties",
)
"""No snapshot is missing. ``plan``, ``rebuild`` and ``stage`` judge the start of what they would write into, and of nothing else."""

NOTHING_IS_DUE_YET = (
    "zeros-after-last-batch-clean-no-snapshot",
    "torn-tail-clean",
    "log-end-lost-clean",
    "log-end-lost-killed",
)
"""The same for ``stage``, which leaves the log end to ``install``."""

GREENER: dict[str, tuple[str, ...]] = {
    "verify": (),
    "plan": NOTHING_IS_DUE,
    "rebuild": NOTHING_IS_DUE,
    "stage": (*NOTHING_IS_DUE, *NOTHING_IS_DUE_YET),
    "before-start": (),
    "cluster source": (),
}
"""States in which a command has exit code 0 all the same, although ``scan`` reports a fate. One that is not needed any more fails."""

SAMPLE = ("clean-stop", "log-end-lost-clean", "topic-id-file-empty", "one-of-two-offline")


def server_properties(base: Path, state: StartState) -> Path:
    """The configuration of the broker of a state."""
    node = ("broker.id=1", "zookeeper.connect=localhost:2181") if state.zookeeper else ("process.roles=broker", "node.id=1")
    listed = ",".join(str(base / name) for name in state.log_dirs)
    settings = [f"{name}={value}" for name, value in state.settings_in(base).items()]
    path = base / "server.properties"
    path.write_text("\n".join((*node, f"log.dirs={listed}", *settings, "")))
    return path


def release_of(state: StartState) -> tuple[str, str]:
    """A release that starts it."""
    return ("--kafka-release", "3.9.2" if state.zookeeper else "4.3.1")


def exit_code(verb: str, base: Path, state: StartState) -> int:
    """Of a command that writes nothing."""
    words: list[object] = [verb, "--server-properties", base / "server.properties"]
    if verb != "cluster source":
        words += release_of(state)
    if verb in ("rebuild", "stage", "before-start"):
        words.append("--dry-run")
    if verb == "stage":
        (base / "staged").mkdir()
        words += ["--to", base / "staged"]
    return snaprebuild(*words).exit_code


@pytest.mark.parametrize(
    "state",
    [pytest.param(state, id=state.name, marks=() if state.name in SAMPLE else pytest.mark.full) for state in STATES],
)
def test_no_command_is_greener_than_scan(state: StartState, tmp_path: Path) -> None:
    """Where ``scan`` reports a fate that is more than a note, no command has exit code 0."""
    state.build(tmp_path)
    properties = server_properties(tmp_path, state)
    scanned = in_json("scan", "--server-properties", properties, *release_of(state)) if _is_readable(tmp_path, state) else None
    if scanned is None:
        assert snaprebuild("scan", "--server-properties", properties).exit_code != 0
        return
    concerns = [fate for fate in scanned.document["fates"] if fate["severity"] != "note"]
    assert scanned.exit_code != 0 or not concerns
    green = {verb for verb in VERBS if exit_code(verb, tmp_path, state) == 0}
    listed = {verb for verb in VERBS if state.name in GREENER[verb]}
    assert (green if concerns else set()) == listed, [fate["kind"] for fate in concerns]


def _is_readable(base: Path, state: StartState) -> bool:
    """Whether one of the log directories is there: else no document is printed."""
    return any((base / name).is_dir() for name in state.log_dirs)
