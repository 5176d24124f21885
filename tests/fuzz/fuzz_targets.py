"""Targets of fuzzing: every reader of ``formats/``, and every verb that takes a path, each as a function of bytes.

`scripts/faults/fuzz.py` drives the targets by coverage; `test_fuzz_corpus.py` repeats what was found on the way.
"""

from functools import partial

from fuzz_readers import READERS, Target
from fuzz_verbs import VERBS, run_verb, seeds_of_verb

__all__ = ["READERS", "TARGETS", "VERB_TARGETS", "Target"]

VERB_TARGETS = {
    name.replace(" --", "-").replace(" ", "-"): Target(partial(run_verb, name), partial(seeds_of_verb, name)) for name in VERBS
}
TARGETS: dict[str, Target] = READERS | VERB_TARGETS
