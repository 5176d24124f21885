"""Power failures after each call of a real run, with every loss and reordering that a file system may make of it.

The calls are those of real runs, recorded through the seam; `test_crash_matrix` has the same under strace. Each state that
may be left is built for real. It has no half file under a real name, nothing is replaced, and the broker can read every file.
A run that is started again finishes with exactly the wanted bytes.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash_model import Content, Disk, State, build_state, read_state
from recorded_calls import Call, NoHardLinks, NoRenameWithoutReplace, RecordedCalls, ShortWrites

from snaprebuild.errors import AlreadyExistsError
from snaprebuild.storage.local.file_calls import OS, FileCalls
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.whole_file import aside_name, remove_second_name, set_aside
from snaprebuild.storage.store import Ownership

NAME = "00000000000000000042.snapshot"
TEMPORARY = NAME + ".tmp"
ASIDE = aside_name(42)
DATA = bytes(range(1, 103))  # as long as a snapshot of two producers: 10 + 2 * 46
OTHER = b"an older file, not ours to replace"
SEGMENT = "00000000000000000000.log"
IS_ROOT = os.getuid() == 0
BROKER_UID, BROKER_GID = (4711, 4712) if IS_ROOT else (os.getuid(), os.getgid())
OWNER = Ownership(BROKER_UID, BROKER_GID, 0o640)
FILE_SYSTEM_IN_MEMORY = Path("/dev/shm")  # thousands of states are built; what they hold is decided by the model, not by the disk


def content(data: bytes) -> Content:
    return Content(data, OWNER.uid, OWNER.gid, OWNER.mode)


BYSTANDERS = {SEGMENT: content(b"the segment"), "00000000000000000021.snapshot": content(b"another snapshot")}


def state_of(files: dict[str, Content], same: tuple[str, str] | None = None) -> State:
    files = BYSTANDERS | files
    names = {name: number for number, name in enumerate(files)}
    if same is not None:
        names[same[1]] = names[same[0]]
    return State(tuple(sorted(names.items())), tuple(files.values()))


class NameAppearsLate(FileCalls):
    """Somebody else takes the name between our first look and our link."""

    def __init__(self) -> None:
        self.is_first = True

    def stat(self, name: str, *, dir_fd: int) -> os.stat_result:
        if name == NAME and self.is_first:
            self.is_first = False
            raise FileNotFoundError(name)
        return super().stat(name, dir_fd=dir_fd)


@dataclass(frozen=True)
class Scenario:
    """A run: what is there before, what is done, and what must be true of every state that it may leave."""

    before: State
    calls: Callable[[], FileCalls] = lambda: OS
    is_setting_aside: bool = False
    is_removing_second_name: bool = False

    def run(self, directory: Path, calls: FileCalls) -> None:
        if self.is_setting_aside:
            set_aside(directory, NAME, ASIDE, calls=calls)
        elif self.is_removing_second_name:
            remove_second_name(directory, NAME, TEMPORARY, calls=calls)
        else:
            create_file(directory, NAME, DATA, owner=OWNER, temporary_name=TEMPORARY, calls=calls)

    def record(self) -> tuple[list[Call], bool]:
        """Runs it for real. Returns the calls, and whether it succeeded rather than found the name taken."""
        with directory_of(self.before) as directory:
            calls = RecordedCalls(self.calls())
            try:
                self.run(directory, calls)
            except AlreadyExistsError:
                return calls.trace, False
            return calls.trace, True


SCENARIOS = {
    "empty": Scenario(state_of({})),
    "leftover": Scenario(state_of({TEMPORARY: Content(DATA[:30], os.getuid(), os.getgid(), 0o644)})),
    "killed-after-link": Scenario(state_of({NAME: content(DATA)}, same=(NAME, TEMPORARY))),
    "name-taken": Scenario(state_of({NAME: content(OTHER)})),
    "name-taken-meanwhile": Scenario(state_of({NAME: content(OTHER)}), NameAppearsLate),
    "short-writes": Scenario(state_of({}), lambda: ShortWrites(30)),
    "no-hard-links": Scenario(state_of({}), NoHardLinks),
    "second-name": Scenario(state_of({NAME: content(DATA)}, same=(NAME, TEMPORARY)), is_removing_second_name=True),
    "set-aside": Scenario(state_of({NAME: content(OTHER)}), is_setting_aside=True),
    "set-aside-by-link": Scenario(state_of({NAME: content(OTHER)}), NoRenameWithoutReplace, is_setting_aside=True),
}


class directory_of:  # noqa: N801
    """A real directory in a given state, gone afterwards."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __enter__(self) -> Path:
        base = FILE_SYSTEM_IN_MEMORY if os.access(FILE_SYSTEM_IN_MEMORY, os.W_OK) else None
        self.path = Path(tempfile.mkdtemp(prefix="crash-point-", dir=base))
        build_state(self.path, self.state)
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path)


def left_states(scenario: Scenario, trace: list[Call]) -> Iterator[tuple[int, State]]:
    """Each state once, with the number of calls after which it may first be found."""
    disk = Disk(scenario.before)
    seen = set()
    for count in range(len(trace) + 1):
        for state in disk.states():
            if state not in seen:
                seen.add(state)
                yield count, state
        if count < len(trace):
            disk.follow(trace[count])


def faults(scenario: Scenario, state: State) -> list[str]:
    """Faults of a state, by the promises alone."""
    found = []
    for name, bystander in BYSTANDERS.items():
        if state.content(name) != bystander:
            found.append(f"{name} changed")
    old = scenario.before.content(NAME)
    if scenario.is_setting_aside:
        if old not in (state.content(NAME), state.content(ASIDE)):
            found.append("the file set aside is lost")
        if {state.content(NAME), state.content(ASIDE)} - {old, None}:
            found.append("the file set aside changed")
    elif old is not None and state.content(NAME) != old:
        found.append("an existing file was replaced")
    elif old is None and state.content(NAME) not in (None, content(DATA)):
        found.append("half a file under the real name")
    for name, number in state.names:
        if not may_broker_read(state.files[number]):
            found.append(f"the broker may not read {name}")
    return found


def may_broker_read(file: Content) -> bool:
    if file.uid == BROKER_UID:
        return bool(file.mode & 0o400)
    return bool(file.mode & (0o040 if file.gid == BROKER_GID else 0o004))


def faults_after_another_run(scenario: Scenario, state: State) -> list[str]:
    with directory_of(state) as directory:
        try:
            scenario.run(directory, scenario.calls())
        except AlreadyExistsError:
            if state.content(NAME) is None:
                return ["refused, although the name was free"]
        except Exception as error:
            if not (scenario.is_setting_aside and state.content(NAME) is None):
                return [f"another run fails: {error!r}"]
        after = read_state(directory)
    wanted = dict(BYSTANDERS)
    if scenario.is_setting_aside:
        wanted[ASIDE] = content(OTHER)
    else:
        wanted[NAME] = scenario.before.content(NAME) or content(DATA)
    if not IS_ROOT:
        wanted = {name: file._replace(uid=os.getuid(), gid=os.getgid()) for name, file in wanted.items()}
    left = {name: after.files[number] for name, number in after.names}
    return [] if left == wanted else [f"another run leaves {left}"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_state_that_a_power_failure_may_leave(name):
    scenario = SCENARIOS[name]
    trace, _ = scenario.record()
    count = 0
    for calls_made, state in left_states(scenario, trace):
        wrong = faults(scenario, state) or faults_after_another_run(scenario, state)
        assert not wrong, f"after {calls_made} of {[str(call) for call in trace]}: {wrong}, {state}"
        count += 1
    if name == "name-taken":
        assert count == 1, "nothing is written beside a name that is taken"
    elif scenario.is_setting_aside or name in ("killed-after-link", "second-name"):
        assert count >= 2
    else:
        assert count >= 200


@pytest.mark.parametrize("name", ["leftover", "no-hard-links"])
def test_a_second_name_is_removed_and_nothing_else(name):
    """Whatever a crash leaves: the temporary name goes where it is one of a whole file, and no other byte or name changes."""
    scenario, removed, seen = SCENARIOS[name], 0, 0
    for _, state in left_states(scenario, scenario.record()[0]):
        names = dict(state.names)
        is_second = TEMPORARY in names and names[TEMPORARY] == names.get(NAME)
        with directory_of(state) as directory:
            before = read_state(directory)
            assert remove_second_name(directory, NAME, TEMPORARY) == is_second
            after = read_state(directory)
        kept = [each for each, _ in before.names if each != TEMPORARY or not is_second]
        assert {each: after.content(each) for each, _ in after.names} == {each: before.content(each) for each in kept}
        if is_second:
            assert state.content(NAME) == content(DATA)
        removed, seen = removed + is_second, seen + 1
    assert seen >= 200
    assert removed == (0 if name == "no-hard-links" else 1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_was_reported_done_survives(name):
    scenario = SCENARIOS[name]
    trace, is_done = scenario.record()
    disk = Disk(scenario.before)
    for call in trace:
        disk.follow(call)
    states = list(disk.states())
    if is_done:
        new_name = ASIDE if scenario.is_setting_aside else NAME
        assert {state.content(new_name) for state in states} == {content(OTHER if scenario.is_setting_aside else DATA)}
        # Everything is synced at the end, so there is one state, and it is the one that all programs see.
        assert states == [disk.running_state()]
    else:
        assert {state.content(NAME) for state in states} == {scenario.before.content(NAME)}
