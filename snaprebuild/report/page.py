"""The page: one self-contained HTML file with its data, style and script. It makes no network requests.

The data are in a script element that is not a script, as JSON without any character that has a meaning in HTML, so that no name ends the
element. Script and style are allowed by their hashes alone (Content-Security-Policy), and the page shows the data as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from functools import cache
from importlib import resources

import msgspec

from snaprebuild import __version__
from snaprebuild.report.page_data import PageData
from snaprebuild.report.page_status import first_lines, page_totals

__all__ = ["page_pieces"]

SCRIPTS = ("text.js", "model.js", "list.js", "timeline.js", "detail.js", "page.js")
"""In the order of the page; each is a part of one script."""

_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})

_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def page_pieces(page: PageData) -> Iterator[str]:
    """The page, piece by piece."""
    style = _asset("page.css")
    script = "\n".join(map(_asset, SCRIPTS))
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    before, _, rest = _asset("page.html").partition("{{data}}")
    middle, _, after = rest.partition("{{script}}")
    # Values last, so that no text inside a value is taken for a placeholder.
    before = before.replace("{{policy}}", policy).replace("{{style}}", style).replace("{{version}}", html.escape(__version__))
    head, _, body = before.partition("{{title}}")
    yield head + html.escape(page.title) + body
    yield "{"
    for name, value in page.page_members():
        yield f"{_json(name)}:{_json(value)},\n"
    totals = page_totals(page)
    yield f'"status":{_json(first_lines(page, totals))},\n"totals":{_json(msgspec.to_builtins(totals))},\n'
    yield '"partitions":['
    for number, partition in enumerate(page.partitions()):
        yield (",\n" if number else "\n") + _json(partition.page_members())
    yield "\n]}"
    yield middle + script + after


def _json(value: object) -> str:
    return _JSON.encode(value).translate(_UNSAFE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return resources.files("snaprebuild.report").joinpath("assets", name).read_text(encoding="utf-8")
