"""Every verb as a function of bytes: a healthy tree of its own, edited as they say, the verb run over it, and the tree as it was again.

Wrong are an exception that is none of the tree of errors, an exit code outside of the contract, a file that is other than before, stdout
that is no JSON where it was asked for, and anything that a terminal would obey.
"""

from __future__ import annotations

import functools
import json

from edited_tree import Files, Place
from every_verb import VERBS, filled, is_printable, run_here
from tree_edits import edit, scripts_over

SCRIPT, AS_JSON = 0x80, 0x40
"""Flags of the first byte: what follows is a script of edits, and not the bytes of one file; the result is asked for as JSON."""
WHOLE_BYTES_MAX = 2000
"""Of a file that an input may replace as a whole: texts, mostly; logs are edited."""


@functools.cache
def place_of(name: str) -> Place:
    """Once for the process."""
    return Place.of_process(VERBS[name])


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
    arguments = (*place.verb.arguments, *(("--output", "json") if is_json else ()))
    with place.edited(files):
        code, output, _ = run_here(filled(arguments, place.root))
    assert code in (0, 1, 2, 3, 4, 5), code
    assert "unforeseen" not in output, output[-2000:]
    assert "(out-of-memory)" not in output, output[-2000:]
    assert is_printable(output), repr(output)[-2000:]
    if is_json and output:
        lines = output.splitlines() if name == "dump" else [output]
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
