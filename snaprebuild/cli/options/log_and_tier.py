"""Options of the verbs on a log and its remote storage."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["LogPath", "OptionalStore"]


LogPath = Annotated[str, typer.Argument(metavar="PATH", hidden=True)]


OptionalStore = Annotated[str | None, typer.Argument(metavar="[STORE]", hidden=True)]
