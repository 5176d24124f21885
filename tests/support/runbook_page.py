"""The guides for operators as a list of commands."""

import re
import shlex
from dataclasses import dataclass

from manifests import REPOSITORY

NAMES = ("repair-a-broker", "rolling-upgrade", "stuck-topic", "tiered-storage", "roll-back", "fleet", "deploy", "monitor")
PAGES = [REPOSITORY / "docs" / "guides" / f"{name}.md" for name in NAMES]
TEXT = "\n".join(page.read_text() for page in PAGES)
EVERY = "\n".join(page.read_text() for page in sorted((REPOSITORY / "docs").rglob("*.md")))


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, under its heading."""

    heading: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Commands, each in one line, without comments."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return [line for each in joined.splitlines() if (line := each.partition("#")[0].strip())]


def blocks(text: str = TEXT) -> list[Block]:
    """All of the pages."""
    found, heading = [], ""
    for part in re.finditer(r"(?ms)^## (?P<heading>[^\n]*)|^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^ *```$", text):
        if part["heading"] is not None:
            heading = part["heading"]
        else:
            found.append(Block(heading, part["language"], part["text"]))
    return found


def block(heading: str) -> Block:
    """The one with shell commands below a heading."""
    (found,) = [each for each in blocks() if each.heading == heading and each.language == "sh"]
    return found


def ours(line: str) -> list[str] | None:
    """The arguments of the command of this project in a line; None where another one is called."""
    words = [word.removeprefix("scripts/") for word in shlex.split(line)]
    return words[words.index("snaprebuild") + 1 :] if "snaprebuild" in words else None
