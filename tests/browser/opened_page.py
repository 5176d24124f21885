"""Pages of ``report``, made and opened in a browser."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from snaprebuild.cli.render.report import partition_next_command
from snaprebuild.report.make import make_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["Scheme", "contrast", "made", "measured", "names", "opened"]

WAIT_MS = 120_000

Scheme = Literal["light", "dark"]

MEASURE = Path(__file__).with_name("measure.js").read_text()


def measured(tab: Page, function: str, *arguments: object) -> Any:
    """The result of a function of ``measure.js`` in the page."""
    return tab.evaluate(f"(words) => {{ {MEASURE}\n return {function}(...words); }}", list(arguments))


@contextlib.contextmanager
def opened(browser: Browser, page: Path, scheme: Scheme = "light", width: int = 1400, **settings: Any) -> Iterator[Page]:
    """A page, opened from its file. It prints nothing on the console, and requests nothing but the file."""
    messages: list[str] = []
    requests: list[str] = []
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 1000}, offline=True, **settings)
    tab = context.new_page()
    tab.set_default_timeout(WAIT_MS)
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("dialog", lambda dialog: (messages.append(f"dialog {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda request: requests.append(request.url))
    try:
        tab.goto(page.as_uri(), timeout=WAIT_MS)
        tab.wait_for_selector("html[data-ready]", state="attached")
        yield tab
        assert messages == []
        assert requests == [page.as_uri()]
    finally:
        context.close()


def made(place: Path, *documents: Path) -> Path:
    """A page in a directory."""
    page = place / "page.html"
    make_report([str(each) for each in documents], str(page), None, partition_next_command)
    return page


def names(tab: Page) -> list[str]:
    """Names of the partitions that are drawn, from top to bottom."""
    rows = tab.locator("#rows .row").all()
    by_place = [(int(row.get_attribute("aria-posinset") or 0), row.locator(".name").text_content() or "") for row in rows]
    return [name for _, name in sorted(by_place)]


def contrast(one: str, other: str) -> float:
    """The contrast of two colours (``rgb(...)``), as WCAG 2 computes it."""
    lighter, darker = sorted(map(luminance, (one, other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of a colour, as WCAG 2 computes it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
