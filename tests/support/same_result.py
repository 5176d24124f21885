"""Whether two runs of a verb have the same result: their documents, without what describes the run and not the files."""

import json
import re
from collections.abc import Iterator
from typing import Any

OF_THE_RUN = (
    *("seconds", "read_bytes", "elapsed_seconds", "phase_seconds", "estimated_seconds", "as_of_ms"),
    *("rate_bytes_per_second", "seconds_estimated", "inputs", "run", "run_name", "staged_ms"),
    *("age_ms", "inode", "modified_ms", "modified_ns", "round_began_ms", "proven_ms", "since_ms"),
)
"""Fields of documents about the run, its clock and its speed, or about inodes and times of files, and not about their contents."""

OF_ONE_RUN = ("run", "run_name", "seconds", "elapsed_seconds", "phase_seconds", "receipt", "next_command")
"""Fields that differ between two runs on one log directory; the next command repeats options of the run."""

RUN_AND_FILES = (*OF_ONE_RUN, "inputs")
"""Fields that differ between two runs on copies of one log directory: also inodes and times of its files."""

DRAWN = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])|(?<=-)[A-Za-z0-9_-]{22}(?=\W)")
"""Ids of segments that an upload draws."""


_SPEED = re.compile(r" in about [0-9.]+ s\b")
"""A duration in a sentence, by the speed at which the run could read."""


def documents(output: str) -> list[Any]:
    """The JSON output of a run, without the members and words that describe the run: one document, or one in each line."""
    output = _SPEED.sub("", output)
    try:
        found = [json.loads(output)] if output else []
    except ValueError:
        found = [json.loads(each) for each in output.splitlines()]
    return [without(each, OF_THE_RUN) for each in found]


def without(value: Any, names: tuple[str, ...]) -> Any:
    """Without the fields of these names, at any depth."""
    if isinstance(value, dict):
        return {name: without(each, names) for name, each in value.items() if name not in names}
    return [without(each, names) for each in value] if isinstance(value, list) else value


def differing(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Places at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() | other.keys():
            yield from differing(one.get(name), other.get(name), f"{place}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from differing(mine, theirs, f"{place}[{index}]")
    elif one != other:
        yield f"{place}: {str(one)[:200]} != {str(other)[:200]}"
