"""Every verb as a function of bytes: they edit a healthy tree, the verb runs over it, and the tree is restored.

A run is wrong if it has one of these:

* an exception that is none of the tree of errors;
* an exit code outside of the contract;
* a file that is other than before;
* stdout that is no JSON where JSON was asked for;
* anything that a terminal would obey;
* more memory than the tree justifies.
"""

import functools
import json

from command import Run, snaprebuild
from edited_tree import Files, Place
from every_verb import VERBS, filled, is_printable
from memory_peak import resident
from tree_edits import edit, scripts_over

SCRIPT, AS_JSON = 0x80, 0x40
"""Flags of the first byte: what follows is a script of edits, and not the bytes of one file; the result is asked for as JSON."""
WHOLE_BYTES_MAX = 2000
"""Size of a file that an input may replace as a whole: texts, mostly; logs are edited."""
TIMES_INPUT = 4
SLACK_BYTES = 16 << 20
RUNS_MAX = 3
"""The kernel counts what other threads take meanwhile, and pages of libraries that come back. What a verb takes, it takes each time."""


def memory_bytes_max(input_bytes: int, output_bytes: int) -> int:
    """Memory that a run may take: the tree four times, and the output as often, since it is kept here and not by the verb."""
    return TIMES_INPUT * (input_bytes + output_bytes) + SLACK_BYTES


@functools.cache
def place_of(name: str) -> Place:
    """Once for the process, and a run of it, in which modules are imported that no input is to blame for."""
    place = Place.of_process(VERBS[name])
    for options in ((), ("--output", "json")):
        with place.edited(dict(place.files)):
            ran = snaprebuild(*filled((*place.verb.arguments, *options), place.root))
        assert ran.exit_code in (0, 1), ran  # else every input would be reported the same
    return place


def run_measured(place: Place, files: Files, options: tuple[str, ...] = ()) -> tuple[Run, int]:
    """The verb over these files.

    Returns:
        The result, and the bytes of memory that it took at its peak: the least of some runs, where the first took too many.
    """
    given = sum(len(each) for each in files.values() if isinstance(each, bytes))
    for _ in range(RUNS_MAX):
        with place.edited(files):
            words = filled((*place.verb.arguments, *options), place.root)
            with resident() as peak:
                ran = snaprebuild(*words)
        most = memory_bytes_max(given, len(ran.stdout))
        if peak.bytes <= most:
            break
    assert peak.bytes <= most, (
        f"{peak.bytes} bytes of memory for {given} bytes of files and {len(ran.stdout)} of output: over {most}"
    )
    return ran, peak.bytes


def edited_by(place: Place, data: bytes) -> Files:
    """The files that an input means."""
    files: Files = dict(place.files)
    names = place.names()
    if data[0] & SCRIPT:
        mine: Files = {name: files.pop(name) for name in names}
        edit(mine, data[1:])
        files |= mine
    else:
        files[names[data[0] % len(names)]] = data[1:]
    return files


def run_verb(name: str, data: bytes) -> None:
    """Raises where something is wrong with us, and not with the bytes."""
    place = place_of(name)
    files = edited_by(place, data) if data else dict(place.files)
    is_json = bool(data) and bool(data[0] & AS_JSON)
    ran, _ = run_measured(place, files, ("--output", "json") if is_json else ())
    output = ran.stdout
    assert ran.exit_code in (0, 1, 2, 3, 4, 5), ran
    assert "unforeseen" not in output, output[-2000:]
    assert "out-of-memory" not in output, output[-2000:]
    assert is_printable(output), repr(output)[-2000:]
    if is_json and output:
        lines = output.splitlines() if name == "inspect dump" else [output]
        for line in lines:
            json.loads(line)


def seeds_of_verb(name: str) -> list[bytes]:
    """Each file as it is, and a script of each kind."""
    place = place_of(name)
    names = place.names()
    whole = [
        bytes((index,)) + place.files[each]
        for index, each in enumerate(names[:SCRIPT])
        if len(place.files[each]) <= WHOLE_BYTES_MAX
    ]
    scripts = scripts_over({each: place.files[each] for each in names})
    return [*whole, *(bytes((SCRIPT | (AS_JSON if index % 2 else 0),)) + each for index, each in enumerate(scripts))]
