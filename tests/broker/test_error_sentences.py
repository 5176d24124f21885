"""The sentences of the page *By error text of the broker* are those of Kafka: each is in a class of a release."""

import re
import zipfile
from pathlib import Path

import pytest
from kafka_classpath import FIRST_WITH_TIERING, KAFKA_VERSION, OTHER_VERSIONS, kafka_classpath
from manifests import REPOSITORY

pytestmark = pytest.mark.kafka

PAGE = REPOSITORY / "docs" / "troubleshooting" / "broker-errors.md"
RELEASES = (FIRST_WITH_TIERING, *OTHER_VERSIONS, KAFKA_VERSION)
OF_JAVA = ("Cannot invoke ", "For input string", "NullPointerException", "IllegalArgumentException", "ProducerStateManager.")
"""Words of the virtual machine, and of a trace."""
SHORT = 8
"""A part of a sentence below this length is in any class."""


def sentences() -> list[str]:
    """Sentences that the headings quote."""
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    return [each for heading in headings for each in re.findall(r"`([^`]+)`", heading)]


def parts_of(sentence: str) -> list[str]:
    """The parts that a class holds: Kafka puts names and numbers between them, and an exception is named before its message."""
    words = re.sub(r"^\w+Exception: ", "", sentence)
    words = re.sub(r"\(\d+\)|\b\d+\b", "...", words).replace("(...)", "...").replace("'...'", "...").replace("[...]", "...")
    return [part for each in words.split("...") if len(part := each.strip(" :;,()")) >= SHORT]


def test_each_sentence_is_in_a_class() -> None:
    wanted = {part for each in sentences() if not any(word in each for word in OF_JAVA) for part in parts_of(each)}
    assert len(wanted) > 30
    for release in RELEASES:
        for jar in filter(lambda path: path.name.startswith("kafka"), map(Path, kafka_classpath(release).split(":"))):
            with zipfile.ZipFile(jar) as opened:
                for name in opened.namelist():
                    data = opened.read(name) if name.endswith(".class") else b""
                    wanted = {part for part in wanted if part.encode() not in data}
    assert wanted == set()
