"""Every target over its seeds and over what was found on the way: nothing outside of the error tree, and memory within bounds.

The corpus was made by `scripts/faults/fuzz.py --keep`; inputs that once were findings have a name that says of what.
"""

import tracemalloc
from pathlib import Path

import pytest
from every_verb import VERBS, words_of
from fuzz_targets import READERS, TARGETS, VERB_TARGETS

from snaprebuild.cli.main import verbs

CORPUS = Path(__file__).with_name("corpus")
SLACK_BYTES = 16 << 20
SEEDS_OF_A_VERB_MAX = 24


def inputs(name: str) -> list[tuple[str, bytes]]:
    seeds = [(f"seed {number}", seed) for number, seed in enumerate(TARGETS[name].seeds())]
    if name not in READERS:
        seeds = seeds[:: max(len(seeds) // SEEDS_OF_A_VERB_MAX, 1)]
    directory = CORPUS / name
    kept = [(path.name, path.read_bytes()) for path in sorted(directory.iterdir())] if directory.is_dir() else []
    return [*seeds, *kept]


def test_the_corpus_belongs_to_targets() -> None:
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} <= set(TARGETS)


@pytest.mark.parametrize("name", READERS)
def test_readers(name: str) -> None:
    """At most four times the input and 16 MiB."""
    run = TARGETS[name].run
    for of, data in inputs(name):
        tracemalloc.start()
        try:
            run(data)
            _, peak_bytes = tracemalloc.get_traced_memory()
        except BaseException as error:
            error.add_note(f"{name}: {of}")
            raise
        finally:
            tracemalloc.stop()
        assert peak_bytes <= 4 * len(data) + SLACK_BYTES, f"{name}: {of}: {peak_bytes} bytes for {len(data)}"


def test_no_verb_is_forgotten() -> None:
    assert {words_of(name) for name in VERBS} == verbs().keys()


@pytest.mark.full
@pytest.mark.parametrize("name", VERB_TARGETS)
def test_verbs(name: str) -> None:
    for of, data in inputs(name):
        try:
            TARGETS[name].run(data)
        except BaseException as error:
            error.add_note(f"{name}: {of}")
            raise
