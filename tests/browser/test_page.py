"""Pages of ``report`` in a real browser: what a person sees, and that nothing is asked of anybody."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from command import snaprebuild
from log_dirs import EMPTY_SNAPSHOT, copy_of, snapshot_name
from pages import HOSTILE, scan_document, scanned, written
from sentences import ONE_PROVEN_WRONG

from snaprebuild.report.make import make_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

WAIT_MS = 120_000
AS_OF = ("--as-of", "2026-11-21T12:00:00Z")


@contextlib.contextmanager
def opened(browser: Browser, page: Path, scheme: Literal["light", "dark"] = "light", **settings: Any) -> Iterator[Page]:
    """A page, opened from its file. Nothing is said on the console, and nothing is asked for but the file."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1400, "height": 1000}, offline=True, **settings)
    tab = context.new_page()
    tab.set_default_timeout(WAIT_MS)
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda request: asked.append(request.url))
    try:
        tab.goto(page.as_uri(), timeout=WAIT_MS)
        tab.wait_for_selector("html[data-ready]", state="attached")
        yield tab
        assert said == []
        assert asked == [page.as_uri()]
    finally:
        context.close()


def made(tmp_path: Path, *documents: Path) -> Path:
    page = tmp_path / "page.html"
    make_report([str(each) for each in documents], str(page))
    return page


def names(tab: Page) -> list[str]:
    """Of the partitions that are drawn, from top to bottom."""
    rows = tab.locator("#rows .row").all()
    found = [(int(row.get_attribute("aria-posinset") or 0), row.locator(".name").inner_text()) for row in rows]
    return [name for _, name in sorted(found)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of three documents on a directory of Kafka 2.7 whose last snapshot was replaced by an empty one."""
    place = tmp_path_factory.mktemp("mixed")
    logs = copy_of("kafka27-mixed", place)
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(EMPTY_SNAPSHOT)
    documents = []
    for verb, *arguments in (("scan",), ("verify", *AS_OF), ("inspect transactions", *AS_OF)):
        documents.append(place / f"{verb}.json")
        documents[-1].write_text(snaprebuild(verb, logs, *arguments, "--output", "json").stdout)
    return made(place, *documents)


def test_what_stands_there(browser: Browser, mixed: Path) -> None:
    with opened(browser, mixed) as tab:
        assert tab.title() == tab.locator("h1").inner_text() == "Producer snapshots"
        cards = dict(zip(tab.locator("#cards dt").all_inner_texts(), tab.locator("#cards .value").all_inner_texts(), strict=True))
        assert {name: cards[name] for name in ("partitions", "wrong snapshots", "stuck partitions", "missing snapshots")} == {
            "partitions": "4",
            "wrong snapshots": "1",
            "stuck partitions": "2",
            "missing snapshots": "14",
        }
        first, following = tab.locator("main p").all_inner_texts()[:2]
        assert first.startswith(f"{ONE_PROVEN_WRONG}. "), first
        assert following == f"Next: snaprebuild plan {mixed.parent / 'kafka27-mixed'} --set-aside"
        below = dict(zip(tab.locator("#cards dt").all_inner_texts(), tab.locator("#cards .below").all_inner_texts(), strict=True))
        assert below["wrong snapshots"] == "32 producers with wrong state"
        assert below["open transactions"] == "by replay"
        assert tab.locator("[data-filter=clean]").inner_text().endswith("1"), "a late transaction is a finding"
        assert names(tab)[:2] == ["mixed-0", "logappend-0"]
        assert tab.locator("#detail-title").inner_text() == "mixed-0", "the worst one is open"
        timeline = tab.locator("svg.timeline")
        assert timeline.locator("rect.seg").count() == 15
        assert timeline.locator(".marker.missing").count() == 12
        assert timeline.locator(".marker.wrong").count() == 1
        assert timeline.locator("rect.txn").count() == 2
        assert timeline.locator(".producer").count() == 32
        assert "33" in timeline.locator(".producer .id").all_text_contents()
        table = tab.locator("section.block", has_text="Producers with wrong state in snapshots").first
        assert table.locator("tbody tr").count() == 25
        table.get_by_role("button", name="Show all 32").click()
        assert table.locator("tbody tr").count() == 32
        assert "is forgotten: undecided data is read by consumers and uploaded" in table.inner_text()


def test_widths_of_segments(browser: Browser, mixed: Path) -> None:
    with opened(browser, mixed) as tab:
        sizes = [path.stat().st_size for path in sorted((mixed.parent / "kafka27-mixed/mixed-0").glob("*.log"))]
        for name, weights in (("segments", [1] * 15), ("bytes", sizes)):
            tab.get_by_role("button", name=name, exact=True).click()
            widths = [float(each.get_attribute("width") or 0) + 1 for each in tab.locator("svg.timeline rect.seg").all()]
            expected = [weight / sum(weights) for weight in weights]
            assert [width / sum(widths) for width in widths] == pytest.approx(expected, abs=0.002)


def test_search_filters_and_findings(browser: Browser, mixed: Path) -> None:
    with opened(browser, mixed) as tab:
        tab.keyboard.press("/")
        tab.keyboard.type("LOGAPP")
        assert names(tab) == ["logappend-0"]
        assert tab.locator("#count").inner_text() == "1 of 4 partitions"
        assert tab.locator("#detail-title").inner_text() == "logappend-0"
        tab.locator("#search").fill("nothing like it")
        assert names(tab) == []
        assert tab.locator("#detail").inner_text() == "No partition is chosen."
        tab.locator("#search").fill("")
        tab.locator("[data-filter=stuck]").click()
        assert sorted(names(tab)) == ["logappend-0", "mixed-0"]
        tab.locator("[data-filter=wrong]").click()
        assert names(tab) == ["mixed-0"], "filters narrow each other"
        for name in ("stuck", "wrong"):
            tab.locator(f"[data-filter={name}]").click()
        tab.locator("[data-code=late-transaction]").click()
        assert sorted(names(tab)) == ["deleted-0", "logappend-0", "mixed-0"]
        assert tab.locator("#code tbody tr").count() == 3
        tab.locator("[data-code=late-transaction]").click()
        assert len(names(tab)) == 4
        tab.locator("#sort").select_option("name")
        assert names(tab) == ["deleted-0", "logappend-0", "mixed-0", "plain-0"]
        tab.locator("#search").fill("mixed")
        assert "late: unknown" in tab.locator("#detail").inner_text(), "why a transaction is open"


LABEL = """each => each.getAttribute("aria-label") || each.getAttribute("aria-labelledby")
  || (each.labels && each.labels.length && each.labels[0].textContent) || each.textContent"""


def test_keyboard_and_what_a_screen_reader_gets(browser: Browser, mixed: Path) -> None:
    with opened(browser, mixed) as tab:
        assert tab.get_by_role("listbox", name="Partitions").count() == 1
        tab.locator("#list").focus()
        tab.keyboard.press("End")
        chosen = tab.locator(f"#{tab.locator('#list').get_attribute('aria-activedescendant')}")
        assert (chosen.get_attribute("aria-posinset"), chosen.get_attribute("aria-setsize")) == ("4", "4")
        assert chosen.get_attribute("aria-selected") == "true"
        assert tab.locator("#detail-title").inner_text() == chosen.locator(".name").inner_text()
        tab.keyboard.press("Home")
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "detail-title"
        tab.locator("svg.timeline").focus()
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("ArrowRight")
        assert tab.locator(".readout").inner_text().startswith("segment 583 to 1151, ")
        for each in tab.locator("button, input, select, [tabindex='0']").all():
            assert each.evaluate(LABEL).strip(), each.evaluate("e => e.outerHTML")


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


TEXTS = (
    "body, h1, #made, .card dt, .card .value, .card .below, .code, .severity, .filter, .name, .place, .badge, #detail h3, .path, "
    ".facts dt, .notice, th, tr:nth-child(-n+3) > td"
)

COLOURS = """texts => [...document.querySelectorAll(texts)].map((each) => {
  let node = each, back = "rgba(0, 0, 0, 0)";
  while (node && back === "rgba(0, 0, 0, 0)") { back = getComputedStyle(node).backgroundColor; node = node.parentElement; }
  return [getComputedStyle(each).color, back, each.outerHTML.slice(0, 200)];
})"""


def test_light_and_dark(browser: Browser, mixed: Path) -> None:
    """As the system has it, and as the button says; every text can be read (4.5 to 1, as WCAG asks)."""
    for scheme in ("light", "dark"):
        with opened(browser, mixed, scheme) as tab:  # type: ignore[arg-type]
            for wanted in (scheme, "light", "dark"):
                dark = luminance(tab.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.1
                assert dark == (wanted == "dark")
                looked_at = tab.evaluate(COLOURS, TEXTS)
                assert len(looked_at) > 50
                for *colours, element in looked_at:
                    lighter, darker = sorted(map(luminance, colours), reverse=True)
                    assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (scheme, wanted, element)
                tab.locator("#theme").click()


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    partitions = [scanned(name, number, missing=1) for number, name in enumerate(HOSTILE)]
    findings = [
        {
            "code": f"hostile-{number}",  # a document with another form of code is refused
            "severity": "finding",
            "path": f"/kafka/{name}-{number}",
            "message": name,
            "offset": None,
            "reason": None,
        }
        for number, name in enumerate(HOSTILE)
    ]
    with opened(browser, made(tmp_path, written(scan_document(partitions, findings), tmp_path / "scan.json"))) as tab:
        # What cannot be seen, or turns the direction of the text, is shown as its escape.
        shown = [
            re.sub(r"[\u2028\u2029\u202e\x00\x1b\ud800-\udfff]", lambda found: f"\\u{{{ord(found[0]):x}}}", name)
            for name in HOSTILE
        ]
        rows = {row.get_attribute("data-name") or "": row.locator(".name").text_content() for row in tab.locator(".row").all()}
        assert sorted(rows.values()) == sorted(f"{name}-{number}" for number, name in enumerate(shown))
        assert tab.locator("main img, main b:not(.code b), #rows script, .name *, #detail h3 *").count() == 0
        assert len(tab.locator("script").all()) == 2
        for row in tab.locator(".row").all():
            row.click()
            assert tab.locator("#detail-title").text_content() in rows.values()
        for button in tab.locator("#codes button").all():
            button.click()


MANY = 1200


def test_many_partitions(browser: Browser, tmp_path: Path) -> None:
    partitions = [
        scanned(f"topic{number % 40:02d}", number // 40, segments=50, missing=49 if number % 7 == 0 else 0)
        for number in range(MANY)
    ]
    stuck = len(range(0, MANY, 7))
    with opened(browser, made(tmp_path, written(scan_document(partitions), tmp_path / "scan.json"))) as tab:
        assert tab.locator("#count").inner_text().split() == ["1", "200", "partitions"]
        assert tab.locator(".row").count() < 60, "only those in sight are drawn"
        assert tab.locator("#cards .value").first.inner_text().split() == ["1", "200"]
        tab.locator("[data-filter=stuck]").click()
        assert tab.locator(".row").first.get_attribute("aria-setsize") == str(stuck)
        tab.locator("#search").fill("topic07-")
        assert tab.locator("#count").inner_text().split()[0] == str(sum(1 for number in range(0, MANY, 7) if number % 40 == 7))
        tab.locator("#search").fill("")
        tab.locator("[data-filter=stuck]").click()
        tab.locator("#list").focus()
        tab.keyboard.press("End")
        tab.wait_for_selector(".row[aria-posinset='1200']")
        assert tab.locator(".row").count() < 60
        assert tab.locator("#detail svg.timeline rect.seg").count() == 50
        tab.emulate_media(media="print")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert tab.locator(".row").count() == 200
        assert "the first 200 are printed" in tab.locator("#count").inner_text()


def test_what_no_document_shows_is_no_zero(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, made(tmp_path, written(scan_document([scanned("a", missing=2)]), tmp_path / "scan.json"))) as tab:
        cards = dict(zip(tab.locator("#cards dt").all_inner_texts(), tab.locator("#cards .value").all_inner_texts(), strict=True))
        assert (cards["wrong snapshots"], cards["missing snapshots"]) == ("–", "2")
        assert "which producers a wrong snapshot would forget" in tab.locator("#detail .lacks").inner_text()


def test_a_narrow_screen(browser: Browser, mixed: Path) -> None:
    with opened(browser, mixed) as tab:
        tab.set_viewport_size({"width": 390, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, "nothing sticks out"
        assert tab.locator("svg.timeline rect.seg").count() == 15


def test_a_row_shows_its_name_and_all_badges(browser: Browser, tmp_path: Path) -> None:
    """Three badges or more in one row, in a wide window and in that of a telephone."""
    partition = scanned("a-topic-with-a-long-name", segments=20, missing=12)
    partition["boundaries"][14]["state"] = "corrupt"
    partition["boundaries"][15] |= {"state": "suspect", "why": ["is empty"]}
    with opened(browser, made(tmp_path, written(scan_document([partition]), tmp_path / "scan.json"))) as tab:
        for width in (1400, 420):
            tab.set_viewport_size({"width": width, "height": 900})
            row = tab.locator(".row").first
            assert row.locator(".badge").count() >= 3
            name, whole = row.locator(".name").bounding_box(), row.bounding_box()
            assert name is not None
            assert whole is not None
            assert name["width"] > 80, width
            for badge in row.locator(".badge").all():
                box = badge.bounding_box()
                assert box is not None
                assert whole["y"] <= box["y"], width
                assert box["y"] + box["height"] <= whole["y"] + whole["height"], width
            hidden = row.locator(".badges").evaluate("each => each.scrollHeight - each.clientHeight")
            assert hidden <= 1, width
