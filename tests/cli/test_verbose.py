"""``-v``: before or after the verb, with the class in place of the word for people."""

from __future__ import annotations

import pytest
from in_process import snaprebuild
from manifests import FIXTURES

LOGS = str(FIXTURES / "kafka27-mixed" / "logs")


@pytest.mark.parametrize("arguments", [["plan", LOGS], ["rebuild", LOGS, "--dry-run"]], ids=lambda words: words[0])
def test_classes(arguments: list[str]) -> None:
    assert "12 proven" in snaprebuild(*arguments).stdout
    for words in (["-v", *arguments], [*arguments, "--verbose"]):
        text = snaprebuild(*words).stdout
        assert "12 EXACT" in text
        assert "proven" not in text
