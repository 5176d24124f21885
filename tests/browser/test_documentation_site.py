"""The documentation site in a real browser: its search, its navigation, and what fits on a screen."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from manifests import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("documentation-site")]

WAIT_MS = 120_000
EXCEPTION = 'Cannot invoke "java.io.File.toPath()" because "producerStateSnapshotFile" is null'

QUESTIONS = (
    # The rows of the start page.
    ("try it without a broker", "guides/first-repair"),
    ("am I affected", "troubleshooting/broker-errors"),
    ("install", "guides/install"),
    ("repair one broker", "guides/repair-a-broker"),
    ("repair a cluster", "guides/fleet"),
    ("stop the exceptions of a topic", "guides/stuck-topic"),
    ("error of the broker", "troubleshooting/broker-errors"),
    ("message of snaprebuild", "troubleshooting/messages"),
    ("how do I undo", "guides/roll-back"),
    ("check snapshots in remote storage", "guides/remote-storage"),
    ("write an uploader", "guides/uploader"),
    # What else users ask.
    (EXCEPTION, "troubleshooting/broker-errors"),
    ("NullPointerException producerStateSnapshotFile", "troubleshooting/broker-errors"),
    ("cannot upload segment to remote storage", "troubleshooting/broker-errors"),
    ("OutOfOrderSequenceException", "troubleshooting/broker-errors"),
    ("InvalidProducerEpochException", "troubleshooting/broker-errors"),
    ("undo", "guides/roll-back"),
    ("late transaction", "guides/inspect"),
    ("open transaction abort", "guides/inspect"),
    ("which replica may be the source", "concepts/one-disk"),
    ("snapshots missing after upgrade from 2.7", "guides/rolling-upgrade"),
    ("rebuild from object storage with spark", "guides/spark"),
    ("follower starts empty from tiered storage", "guides/follower"),
    ("switch on tiered storage", "guides/tiered-storage"),
    ("exit code 3", "reference/exit-codes"),
    ("broker does not start", "troubleshooting/broker-does-not-start"),
    ("is this broker safe to start", "troubleshooting/safe-to-start"),
    ("prometheus alert", "guides/monitor"),
    ("ansible playbook", "guides/ansible"),
    ("kubernetes strimzi", "guides/kubernetes"),
    ("election may delete data", "guides/fleet"),
    ("permission denied", "troubleshooting/messages"),
    ("topic id missing meta.properties", "guides/topics-without-an-id"),
    ("snapshot file format", "reference/snapshot-format"),
    ("what does unproven mean", "concepts/confidence"),
    ("impact on running broker page cache", "concepts/impact"),
    ("S3 credentials", "guides/object-storage"),
    ("upload segments without a broker", "guides/upload"),
    ("which versions of Kafka are supported", "reference/compatibility"),
    ("KRaft metadata log", "guides/cluster-metadata"),
    ("remote.log.copy.disable", "guides/stuck-topic"),
    # Fields of documents.
    ("JSON", "reference/json"),
    ("JSON of tier audit", "reference/json/tier-audit"),
    ("JSON of undo", "reference/json/undo"),
    ("stuck_bytes", "reference/json/scan"),
)
"""A question as people type it, and the page that must be the first hit."""


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name of the base class)
        """The requests of a browser are no output of a test."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site, on loopback: the search needs a web server."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", directory]
    settings = {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=directory))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def opened(browser: Browser, address: str, width: int) -> Page:
    tab = browser.new_page(viewport={"width": width, "height": 1000})
    tab.set_default_timeout(WAIT_MS)
    tab.goto(address, timeout=WAIT_MS)
    return tab


def hits(tab: Page, question: str) -> list[str]:
    """The pages that the search of the site finds, best first, without their suffix."""
    box = tab.locator("input.md-search__input")
    shown = "document.querySelector('.md-search-result__meta').textContent"
    box.fill("")
    box.dispatch_event("keyup")
    tab.wait_for_function(f"/Type to start/.test({shown})")
    box.fill(question)
    box.dispatch_event("keyup")
    tab.wait_for_function(f"/matching/.test({shown})")
    # The list is drawn in the same step as the line above it, or in the next frame.
    tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    items = tab.evaluate("[...document.querySelectorAll('.md-search-result__item')].map(each => each.querySelector('a').pathname)")
    return list(dict.fromkeys(each.strip("/").removesuffix(".html") for each in items))


def test_a_question_finds_its_page_first(browser: Browser, site: str) -> None:
    assert len(QUESTIONS) >= 30
    tab = opened(browser, site + "index.html", 1300)
    tab.locator("input.md-search__input").click()
    others = {}
    for question, page in QUESTIONS:
        found = hits(tab, question)
        if found[:1] != [page]:
            others[question] = (page, found[:3])
    tab.close()
    assert others == {}


def test_the_exception_that_people_search_for_fits_at_1300_pixels(browser: Browser, site: str) -> None:
    """The whole line is visible without scrolling, on the start page and on the page of errors."""
    for page in ("index.html", "troubleshooting/broker-errors.html"):
        tab = opened(browser, site + page, 1300)
        code = tab.locator("pre code", has_text="producerStateSnapshotFile").first
        ends = code.evaluate(
            """element => {
                const word = "producerStateSnapshotFile", range = document.createRange();
                const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
                while (walker.nextNode()) {
                    const at = walker.currentNode.data.indexOf(word);
                    if (at < 0) continue;
                    range.setStart(walker.currentNode, at);
                    range.setEnd(walker.currentNode, at + word.length);
                    return [range.getBoundingClientRect().right, element.getBoundingClientRect().right];
                }
            }"""
        )
        assert 300 < ends[0] <= ends[1] <= 1300, page
        tab.close()


def test_groups_can_be_folded(browser: Browser, site: str) -> None:
    tab = opened(browser, site + "guides/repair-a-broker.html", 1300)
    tabs = [each.inner_text() for each in tab.locator(".md-tabs__link").all()]
    assert tabs == ["Home", "Operate", "Read", "Develop"]
    sibling = tab.locator(".md-sidebar--primary a", has_text="Roll back").first
    assert sibling.is_visible(), "the group of the page is open"
    tab.locator(".md-sidebar--primary label.md-nav__link", has_text="Repair brokers").locator("visible=true").first.click()
    sibling.wait_for(state="hidden")
    tab.close()


def test_a_reader_switches_between_light_and_dark(browser: Browser, site: str) -> None:
    tab = opened(browser, site + "index.html", 1300)

    def background() -> str:
        return str(tab.evaluate("getComputedStyle(document.body).backgroundColor"))

    seen = set()
    for _ in range(3):
        seen.add(background())
        tab.locator("form[data-md-component=palette] label").locator("visible=true").first.click()
    assert len(seen) == 2
    tab.close()


def test_a_page_leads_to_the_next_and_the_previous_one(browser: Browser, site: str) -> None:
    tab = opened(browser, site + "guides/install.html", 1300)
    links = [tab.locator(f".md-footer__link--{which}").get_attribute("href") for which in ("prev", "next")]
    assert links == ["first-repair.html", "../troubleshooting/safe-to-start.html"]
    tab.close()


def test_nothing_but_code_is_wider_than_a_small_screen(browser: Browser, site: str) -> None:
    """At 500 pixels no page scrolls sideways, and no part of it does but code and tables, which scroll by themselves."""
    pages = sorted(
        path.relative_to(REPOSITORY / "docs").with_suffix(".html").as_posix() for path in (REPOSITORY / "docs").rglob("*.md")
    )
    tab = browser.new_page(viewport={"width": 500, "height": 1000})
    tab.set_default_timeout(WAIT_MS)
    tab.route("**/search/**", lambda request: request.abort())  # each page would make the index of all pages
    wide = {}
    for page in pages:
        tab.goto(site + page, timeout=WAIT_MS)
        found = tab.evaluate(
            """() => [document.documentElement.scrollWidth > 500 ? "page" : "", ...[...document.querySelectorAll(".md-content *")]
                .filter(each => !each.closest("pre, .highlight, .md-typeset__scrollwrap, .md-clipboard, .headerlink"))
                .filter(each => each.getBoundingClientRect().right > 500.5)
                .map(each => `${each.tagName} ${each.textContent.trim().slice(0, 60)}`)].filter(each => each)"""
        )
        if found:
            wide[page] = found[:3]
    tab.close()
    assert len(pages) > 40
    assert wide == {}
