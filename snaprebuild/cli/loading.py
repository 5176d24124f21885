"""While the command is loaded, the collector of cycles rests: the many objects that loading makes stay, and looking at them takes time."""

from __future__ import annotations

import gc

__all__ = ["begin_loading", "end_loading"]

_USUAL = gc.get_threshold()
_OBJECTS = 1_000_000
"""More than loading makes. The collector stays on: what loads without an end is collected."""


def begin_loading() -> None:
    """From now on it rests."""
    gc.set_threshold(_OBJECTS, *_USUAL[1:])


def end_loading() -> None:
    """It works as usual, and leaves out what was loaded. Nothing changes if it did not rest."""
    if gc.get_threshold()[0] == _OBJECTS:
        gc.freeze()
        gc.set_threshold(*_USUAL)
