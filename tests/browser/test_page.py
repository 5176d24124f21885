"""Pages of ``report`` in a real browser: what a person sees, and that nothing is asked of anybody."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import snaprebuild
from log_dirs import EMPTY_SNAPSHOT, copy_of, snapshot_name
from manifests import FIXTURES
from opened_page import Scheme, contrast, made, measured, names, opened
from pages import HOSTILE, scan_document, scanned, written
from sentences import ONE_PROVEN_WRONG

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

AS_OF = ("--as-of", "2026-11-21T12:00:00Z")


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


def test_the_top_and_the_worst_partition(browser: Browser, mixed: Path) -> None:
    with opened(browser, mixed) as tab:
        assert tab.title() == tab.locator("h1").inner_text() == "Producer snapshots"
        cards = measured(tab, "cards")
        assert {name: number for name, (number, _) in cards.items()} == {
            "partitions": "4",
            "fates at the next start": "0",
            "wrong snapshots": "1",
            "suspect snapshots": "0",
            "missing snapshots": "14",
            "unverifiable snapshots": "0",
            "stuck partitions": "2",
            "waiting segments": "2",
            "open transactions": "4",
            "findings": "6",
        }
        assert cards["wrong snapshots"][1] == "proven: 32 entries of producers"
        assert cards["open transactions"][1] == "4 late"
        assert tab.locator("#sentence").inner_text().startswith(f"{ONE_PROVEN_WRONG}. ")
        plan = f"snaprebuild plan {mixed.parent / 'kafka27-mixed'}"
        assert tab.locator("#next code").inner_text() == f"{plan} {' '.join(AS_OF)} --set-aside"
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
        table = tab.locator("section.block", has_text="Producers with wrong state").first
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
        assert "late, cause unknown" in tab.locator("#detail").inner_text(), "why a transaction is open"


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


def test_every_text_can_be_read_in_light_and_dark(browser: Browser, mixed: Path) -> None:
    """By the colours of the system, and by the button; 4.5 to 1, as WCAG 2 asks."""
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for scheme in schemes:
        with opened(browser, mixed, scheme) as tab:
            tab.locator("#codes button").first.click()
            for wanted in (scheme, "light", "dark"):
                back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (contrast(back, "rgb(0, 0, 0)") < 2) == (wanted == "dark")
                texts = measured(tab, "colours")
                assert len(texts) > 60
                assert {"text", "lane"} <= {word for _, _, what in texts for word in what.split()}, "texts of drawings, too"
                for colour, behind, what in texts:
                    assert contrast(colour, behind) >= 4.5, (scheme, wanted, what, colour, behind)
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
        own = "main b:not(.code b, .next b, #answers b)"
        assert tab.locator(f"main img, {own}, #rows script, .name * *, #detail h3 *, code * *").count() == 0
        assert len(tab.locator("script").all()) == 2
        for row in tab.locator(".row").all():
            row.click()
            name = tab.locator("#detail-title").text_content()
            assert name in rows.values()
            # A terminal may obey characters that nobody sees: the command has them as escapes of the shell.
            command = tab.locator("#detail .next code").text_content() or ""
            assert command.isprintable(), name
            assert tab.locator("#detail .next .copy").count() == 1, name
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
        cards = measured(tab, "cards")
        assert {name for name, (number, _) in cards.items() if number == "–"} == {"wrong snapshots", "unverifiable snapshots"}
        assert cards["missing snapshots"][0] == "2"
        assert cards["wrong snapshots"][1] == "not compared: run verify"
        assert "which producers a wrong snapshot would forget" in tab.locator("#detail .lacks").inner_text()


def test_proven_wrong_and_unverifiable_are_apart(browser: Browser, tmp_path: Path) -> None:
    """In cards, filters, badges and heads of sections; what is unverifiable is no finding and no zero."""
    logs = FIXTURES / "kafka27-compacted" / "logs"
    verify = tmp_path / "verify.json"
    verify.write_text(snaprebuild("verify", logs, *AS_OF, "--output", "json").stdout)
    (partition,) = json.loads(verify.read_text())["partitions"]
    counts = [each["comparison"]["status"] for each in partition["snapshots"]]
    unverifiable = counts.count("unverifiable")
    differing = sum(each["comparison"]["difference_count"] for each in partition["snapshots"])
    assert unverifiable > 0
    assert differing > 0
    with opened(browser, made(tmp_path, verify)) as tab:
        cards = measured(tab, "cards")
        assert (cards["wrong snapshots"][0], cards["unverifiable snapshots"][0]) == ("0", str(unverifiable))
        assert cards["wrong snapshots"][1] == "none proven wrong"
        filters = {each.get_attribute("data-filter") for each in tab.locator("#filters button").all()}
        assert filters == {"unverifiable"}, "not wrong, and not among those where nothing was found"
        heads = tab.locator("#detail h4").all_inner_texts()
        assert f"Producers that cannot be verified{differing}" in heads
        assert not any("wrong" in each for each in heads)
        assert tab.locator(".row .badge").all_inner_texts() == [f"{unverifiable} unverifiable"]
        assert tab.locator("svg.timeline .marker.unverifiable").count() == unverifiable


def test_nothing_found_has_no_finding(browser: Browser, mixed: Path) -> None:
    with opened(browser, mixed) as tab:
        tab.locator("[data-filter=clean]").click()
        for row in tab.locator(".row").all():
            row.click()
            assert tab.locator("#detail .severity.finding, #detail .severity.damaged").count() == 0
            assert "nothing found" in row.inner_text()
        tab.locator("[data-filter=clean]").click()
        assert names(tab)[-1] == "plain-0", "the worst first: those with a finding are before it"


def test_a_finding_of_a_log_directory_shows_its_partitions(browser: Browser, tmp_path: Path) -> None:
    """And one that is about no partition of the page does not empty the list."""
    documents = [tmp_path / "clean.json", tmp_path / "killed.json"]
    for path, name in zip(documents, ("kafka27-mixed", "kafka27-killed"), strict=True):
        path.write_text(snaprebuild("scan", FIXTURES / name / "logs", "--output", "json").stdout)
    document = json.loads(documents[0].read_text())
    elsewhere = {"code": "elsewhere", "severity": "note", "path": "/another/place", "message": "x", "offset": None, "reason": None}
    document["findings"].append(elsewhere)
    written(document, documents[0])
    with opened(browser, made(tmp_path, *documents)) as tab:
        everything = names(tab)
        tab.locator("[data-code=unclean-shutdown]").click()
        killed = sorted(path.name for path in (FIXTURES / "kafka27-killed" / "logs").iterdir() if path.is_dir())
        assert sorted(names(tab)) == killed
        assert tab.locator("#code tbody tr").count() == 1
        assert tab.locator("#detail .severity.note", has_text="note").count() >= 1
        tab.locator("[data-code=elsewhere]").click()
        assert names(tab) == everything
        assert tab.locator("#code tbody tr").count() == 1
        assert "about no single partition" in tab.locator("#code").inner_text()
        tab.locator("[data-code=elsewhere]").click()
        assert tab.locator("#code tbody tr").count() == 0


def test_an_open_transaction_has_its_age_and_command(browser: Browser, mixed: Path, tmp_path: Path) -> None:
    document = json.loads((mixed.parent / "inspect transactions.json").read_text())
    (partition,) = [each for each in document["partitions"] if each["topic_partition"] == "mixed-0"]
    commands = {
        "since_3_0": "kafka-transactions.sh abort --start-offset 6913",
        "before_3_0": "kafka-transactions.sh abort --epoch 0",
    }
    over, alive = partition["open"]
    over |= {"abort_commands": commands, "since_ms": document["as_of_ms"] - 93_784_000, "last_ms": document["as_of_ms"] - 3_600_000}
    alive |= {"since_ms": None, "last_ms": None}
    page = made(tmp_path, mixed.parent / "scan.json", written(document, tmp_path / "transactions.json"))
    with opened(browser, page) as tab:
        first, second = tab.locator(".transaction").all()
        facts = measured(tab, "facts", 0)
        assert (facts["from offset"], facts["producer id"], facts["age"], facts["silent for"]) == ("6913", "33", "1 d 2 h", "1 h")
        assert facts["since"] == "2026-11-20 09:56:56 UTC"
        assert first.locator("code").all_inner_texts() == [commands["since_3_0"], commands["before_3_0"]]
        assert "broker 3.0 or newer" in first.inner_text()
        assert second.locator("code").count() == 0, "it may be alive"
        unknown = measured(tab, "facts", 1)
        assert {unknown[name] for name in ("since", "age", "last batch", "silent for")} == {"unknown"}
        question = tab.locator("#detail .block", has_text="Open transactions").locator("> .commands code").inner_text()
        assert question == "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --topic mixed --partition 0"


def test_a_command_is_copied(browser: Browser, mixed: Path) -> None:
    """From a file, with and without the clipboard of the browser; what is pasted is what is shown."""
    wanted = f"snaprebuild plan {mixed.parent / 'kafka27-mixed'}"
    for has_clipboard in (True, False):
        with opened(browser, mixed) as tab:
            if not has_clipboard:
                tab.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')); }")
            tab.locator("#next .copy").focus()
            tab.keyboard.press("Enter")
            tab.get_by_text("Copied", exact=True).wait_for()
            assert tab.locator("#said").inner_text() == "Command copied"
            tab.locator("#search").focus()
            tab.keyboard.press("Control+V")
            assert tab.locator("#search").input_value() == f"{wanted} {' '.join(AS_OF)} --set-aside"
            tab.locator("#search").fill("")
            assert tab.locator("#detail .next code").inner_text() == f"{wanted}/mixed-0 --as-of 1795262400000 --set-aside"
            tab.locator("#search").fill("logappend")
            assert tab.locator("#detail .next code").inner_text() == f"{wanted}/logappend-0 --as-of 1795262400000"


def test_the_focus_is_seen_and_goes_everywhere(browser: Browser, mixed: Path) -> None:
    """Tab reaches each control in its order, and each has an outline."""
    with opened(browser, mixed) as tab:
        focusable = tab.locator("a[href], button, input, select, [tabindex='0']").all()
        reached = []
        for _ in focusable:
            tab.keyboard.press("Tab")
            outline, what = measured(tab, "focus")
            assert "solid 2px" in outline, what
            reached.append(what)
        assert len(set(reached)) == len(reached) == len(focusable)
        assert [each.split()[0] for each in reached[:3]] == ["A", "BUTTON", "BUTTON"]
