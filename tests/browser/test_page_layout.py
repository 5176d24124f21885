"""Pages of ``report`` in windows of several widths, measured in a real browser: nothing is cut off, hidden or out of its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import snaprebuild
from log_dirs import EMPTY_SNAPSHOT, copy_of, snapshot_name
from manifests import FIXTURES
from opened_page import Scheme, made, measured, opened
from pages import scan_document, scanned, segments_of, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

WIDTHS = (360, 500, 1400)

SCHEMES: tuple[Scheme, ...] = ("light", "dark")

AS_OF = ("--as-of", "2026-11-21T12:00:00Z")

LONG = "a.topic_with-a-name." * 12 + "of-249---"
"""Kafka's longest name of a topic."""


def saved(place: Path, name: str, *words: object) -> Path:
    """A document of a command."""
    path = place / f"{name}.json"
    path.write_text(snaprebuild(*words, "--output", "json").stdout)
    return path


def a_log_directory(place: Path) -> list[Path]:
    """Three documents about a directory with a snapshot that is proven wrong."""
    logs = copy_of("kafka27-mixed", place)
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(EMPTY_SNAPSHOT)
    transactions = saved(place, "transactions", "inspect", "transactions", logs, *AS_OF)
    document = json.loads(transactions.read_text())
    for each in document["partitions"]:
        for transaction in each["open"]:
            words = (
                f"kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic {each['topic']} --partition {each['partition']}"
            )
            transaction["abort_commands"] = {
                "since_3_0": f"{words} --start-offset {transaction['first_offset']}",
                "before_3_0": f"{words} --producer-id {transaction['producer_id']} --producer-epoch 0 --coordinator-epoch 0",
            }
            break  # the others may be alive
    return [saved(place, "scan", "scan", logs), saved(place, "verify", "verify", logs, *AS_OF), written(document, transactions)]


def a_killed_broker(place: Path) -> list[Path]:
    """Unverifiable snapshots of a compacted topic, formats that are never uploaded, a finding of the log directory."""
    logs = FIXTURES / "kafka27-killed" / "logs"
    transactions = saved(place, "transactions", "inspect", "transactions", logs, *AS_OF)
    return [saved(place, "scan", "scan", logs), saved(place, "verify", "verify", logs, *AS_OF), transactions]


def many_partitions(place: Path) -> list[Path]:
    """A thousand partitions with the longest names, and findings with messages to match."""
    partitions = [scanned(LONG, number, segments=30, missing=29 if number % 3 == 0 else 0) for number in range(1000)]
    findings = [
        {
            "code": "missing-snapshots",
            "severity": "finding",
            "path": f"{each['path']}/00000000000000000000.log",
            "message": f"29 of 30 snapshots are missing in {LONG}",
            "offset": 100,
        }
        for each in partitions
        if each["missing_offsets"]
    ]
    return [written(scan_document(partitions, findings), place / "scan.json")]


def a_long_log(place: Path) -> list[Path]:
    """Three thousand segments, and the greatest offsets."""
    most = 2**63 - 1
    far = scanned("far", log_end={"offset": most, "source": "x", "at_least": most}, high_watermark=most - 2, missing=3)
    suspect = scanned("suspect", segments=20, missing=12)
    suspect["boundaries"][14]["state"] = "corrupt"
    suspect["boundaries"][15] |= {"state": "suspect", "reasons": ["is empty, " + "and everything contradicts it " * 9]}
    suspect["segments"] = segments_of([2**40] * 20)
    return [written(scan_document([scanned("long", segments=3000, missing=700), far, suspect]), place / "scan.json")]


def a_fleet(place: Path) -> list[Path]:
    """Tables with many columns."""
    scans = []
    for node in (1, 2, 3):
        partitions = [scanned(f"orders-{name}", missing=(name + node) % 4) for name in range(8)]
        scans.append(written(scan_document(partitions, node_id=node), place / f"broker-{node}.json"))
    return [saved(place, "fleet", "fleet", *scans), *scans]


def an_audit(place: Path) -> list[Path]:
    """Copies in remote storage with wrong snapshots."""
    return [saved(place, "audit", "tier", "audit", FIXTURES / "aiven-layout/diseased", *AS_OF)]


def a_receipt(place: Path) -> list[Path]:
    """Files that a run wrote."""
    receipt = place / "receipt.jsonl"
    assert snaprebuild("rebuild", copy_of("kafka27-mixed", place), "--receipt", receipt, *AS_OF).exit_code == 0
    return [receipt]


DOCUMENTS: tuple[Callable[[Path], list[Path]], ...] = (
    *(a_log_directory, a_killed_broker, many_partitions, a_long_log, a_fleet, an_audit, a_receipt),
)


def check(tab: Page, what: object) -> int:
    """Measures everything that is visible; returns how many rows of tables were measured."""
    assert measured(tab, "misplaced") == [], what
    assert measured(tab, "labels") == [], what
    count, wrong = measured(tab, "rows")
    assert wrong == [], what
    assert isinstance(count, int)
    return count


def resized(tab: Page, width: int) -> None:
    """Waits until the page has drawn itself for the new width."""
    tab.set_viewport_size({"width": width, "height": 900})
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture(scope="module", params=DOCUMENTS, ids=lambda each: each.__name__)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of some documents."""
    place = tmp_path_factory.mktemp("page")
    documents: list[Path] = request.param(place)
    return made(place, *documents)


def test_everything_is_in_its_place_at_each_width(browser: Browser, page: Path) -> None:
    rows = 0
    for scheme in SCHEMES:
        with opened(browser, page, scheme) as tab:
            for width in WIDTHS:
                resized(tab, width)
                for row in tab.locator(".row").all()[:4]:
                    row.click()
                    rows += check(tab, (scheme, width, row.get_attribute("data-name")))
                for button in tab.locator("#codes button").all()[:3]:
                    button.click()
                    rows += check(tab, (scheme, width, button.inner_text()))
                    button.click()
    assert rows > 0


def test_zoom_is_the_only_thing_that_scrolls_sideways(browser: Browser, tmp_path: Path) -> None:
    partition = scanned("long", segments=900, missing=3)
    with opened(browser, made(tmp_path, written(scan_document([partition]), tmp_path / "scan.json")), width=500) as tab:
        assert check(tab, "whole") > 0
        drawn = tab.locator("svg.timeline rect.seg").count()
        assert 50 < drawn < 900, "segments that nobody could tell apart share a mark"
        assert tab.locator("svg.timeline .marker.missing").count() >= 1
        tab.get_by_role("button", name="zoom").click()
        assert tab.locator("svg.timeline rect.seg").count() == 900
        assert tab.locator("svg.timeline .marker.missing").count() == 3
        wide, room = tab.locator(".frame").evaluate("each => [each.scrollWidth, each.clientWidth]")
        assert wide > 900 * 9 > room
        assert tab.evaluate("document.documentElement.scrollWidth") == 500
        assert tab.evaluate("document.activeElement.textContent") == "zoom", "the focus stays"


def test_tables_of_a_narrow_window_name_each_value(browser: Browser, tmp_path: Path) -> None:
    """A row becomes a list of names and values. It is still a table for screen readers."""
    with opened(browser, made(tmp_path, *a_log_directory(tmp_path)), width=500) as tab:
        table = tab.locator("section.block", has_text="Producers with wrong state").first
        assert not table.locator("thead").evaluate("each => each.getBoundingClientRect().height > 1")
        cell = table.locator("tbody tr").first.locator("td").nth(1)
        label = cell.evaluate("each => getComputedStyle(each, '::before').content")
        assert (label, cell.inner_text()) == ('"producer id"', "33")
        assert tab.get_by_role("table").count() >= 3
        assert tab.get_by_role("columnheader", name="producer id").count() >= 1
        resized(tab, 1400)
        assert table.locator("thead").evaluate("each => each.getBoundingClientRect().height > 10")
        assert cell.evaluate("each => getComputedStyle(each, '::before').content") == "none"


def test_a_long_name_keeps_its_number(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, made(tmp_path, *many_partitions(tmp_path))) as tab:
        for width in WIDTHS:
            resized(tab, width)
            row = tab.locator(".row[aria-posinset='2']")
            name: dict[str, Any] = row.locator(".name").evaluate("each => ({title: each.title, text: each.textContent})")
            assert name["title"] == name["text"] == row.get_attribute("data-name")
            assert len(name["text"]) > 249
            end = row.locator(".end").bounding_box()
            whole = row.bounding_box()
            assert end is not None
            assert whole is not None
            assert end["x"] + end["width"] <= whole["x"] + whole["width"], width
            assert name["text"].endswith(row.locator(".end").text_content() or "no end")
