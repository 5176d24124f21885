"""Texts and anchors as Markdown has them."""

from __future__ import annotations

import re


def cell(text: str) -> str:
    """A text for one cell of a table in Markdown."""
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


def anchor(title: str) -> str:
    """The anchor that GitHub and MkDocs give to a title."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())
