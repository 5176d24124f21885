"""Takes the pictures of docs/guides/monitor.md: scripts/docs/build pictures."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Literal

from chromium import program
from command import snaprebuild_process
from pages import scan_document, scanned
from playwright.sync_api import Browser, sync_playwright

from snaprebuild.cli.render.report import partition_next_command
from snaprebuild.report.make import make_report

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
AS_OF = ("--as-of", "2026-11-21T12:00:00Z")
SHOWN_AS = "/var/lib/kafka/data-1"


def documents_of_a_directory(place: Path) -> list[str]:
    """Documents of a log directory of Kafka 2.7 whose last snapshot was replaced by an empty one."""
    logs = Path(shutil.copytree(ROOT / "fixtures" / "kafka27-mixed" / "logs", place / "logs"))
    (logs / "mixed-0" / f"{8231:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)
    files = []
    for verb, *arguments in (("scan",), ("verify", *AS_OF), ("inspect transactions", *AS_OF)):
        files.append(place / f"{verb}.json")
        text = snaprebuild_process(verb, logs, *arguments, "--output", "json").stdout
        files[-1].write_text(text.replace(str(logs), SHOWN_AS).replace(json.dumps(socket.gethostname()), '"broker-1"'))
    return [str(each) for each in files]


def documents_of_many(place: Path) -> list[str]:
    """A scan of 4,000 partitions with 50 segments each."""
    partitions = []
    for number in range(4000):
        missing = 49 if number % 7 == 0 else 12 if number % 11 == 0 else 0
        topic = ("orders", "payments", "clicks", "inventory.eu", "audit")[number % 5]
        name = f"{topic}.v{number % 40 // 5 + 1}"
        path = f"/var/lib/kafka/data-{number % 12 + 1}"
        partition = scanned(name, number // 40, segments=50, missing=missing, log_dir=path)
        partitions.append(partition | {"path": f"{path}/{partition['topic_partition']}"})
    findings = []
    for each in partitions:
        if missing := len(each["upload"]["blocked_segments"]):
            message = f"{missing} of 50 snapshots are missing"
            finding = {"code": "missing-snapshots", "severity": "finding", "path": each["path"], "message": message}
            findings.append(finding | {"offset": None, "reason": None})
    file = place / "broker-1.json"
    file.write_text(json.dumps(scan_document(partitions, findings)))
    return [str(file)]


def take(browser: Browser, documents: list[str], name: str, title: str, scheme: Literal["light", "dark"], height: int) -> None:
    """One picture, of the page as it is right after it was opened."""
    page = Path(documents[0]).with_suffix(".html")
    make_report(documents, str(page), title, partition_next_command)
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": height}, offline=True)
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.screenshot(path=IMAGES / name)
    context.close()


def main() -> None:
    """Entry point."""
    with tempfile.TemporaryDirectory() as work, sync_playwright() as driver:
        one = Path(work) / "one"
        many = Path(work) / "many"
        one.mkdir()
        many.mkdir()
        browser = driver.chromium.launch(executable_path=program(), args=["--no-sandbox", "--disable-gpu"], timeout=120_000)
        documents = documents_of_a_directory(one)
        take(browser, documents, "report-light.png", "Broker 1", "light", 1560)
        take(browser, documents, "report-dark.png", "Broker 1", "dark", 1560)
        take(browser, documents_of_many(many), "report-4000.png", "Broker 1", "light", 1080)
        browser.close()
