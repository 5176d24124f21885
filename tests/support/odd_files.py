"""Odd things in the place of a regular file."""

import os
from pathlib import Path

ODD_KINDS = ("directory", "pipe", "link", "dangling link")


def make_odd(path: Path, kind: str) -> None:
    """Puts one of ``ODD_KINDS`` there. A link leads to ``target`` next to it, which is made."""
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            (path.parent / "target").write_bytes(b"target")
            path.symlink_to("target")
        case "dangling link":
            path.symlink_to("nowhere")
        case _:
            raise ValueError(kind)
