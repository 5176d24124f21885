"""Weights of pages in the search of the site, a hook of MkDocs: it finds a guide before a page of reference that repeats its words."""

from __future__ import annotations

from typing import Any

BOOSTS = {
    "guides/": 2.0,
    "guides/spark.md": 4.0,
    "guides/tiered-storage.md": 1.0,
    "troubleshooting/": 2.0,
    "troubleshooting/broker-does-not-start.md": 4.0,
    "troubleshooting/safe-to-start.md": 1.0,
    "internals/": 0.5,
    "reference/commands.md": 0.5,
    "reference/json": 0.9,
    "reference/api.md": 0.5,
}
"""How much a hit counts by the beginning of the path of its page; the longest beginning decides. 1 for all others."""


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Gives a page its place in the search; the text stays as it is."""
    path = page.file.src_uri
    beginnings = [each for each in BOOSTS if path.startswith(each)]
    if beginnings:
        page.meta["search"] = {"boost": BOOSTS[max(beginnings, key=len)]}
    return markdown
