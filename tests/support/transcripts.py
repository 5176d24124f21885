"""Reads a recorded transcript of a demonstration: the first lines of each command's answer, without the parts that differ between
runs."""

import re

NUMBER = re.compile(r"\d[\d.,]*( [KMGT]i?B\b| bytes?\b)?")
PLURAL = {"are": "is", "have": "has", "were": "was", "copies": "copy"}
RECEIPT = re.compile(r"snaprebuild-receipt-\S+?\.jsonl")
ENDS = ("$ ", "== ", "  ok: ")


def answers(transcript: str) -> list[tuple[str, str]]:
    """Each command, with its first paragraph in one line: numbers and plurals are left out, as they depend on what a broker wrote."""
    found: list[tuple[str, str]] = []
    is_first = False
    for line in transcript.splitlines():
        if line.startswith("$ snaprebuild "):
            found.append((_without_numbers(line), ""))
            is_first = True
        elif not line.strip() or line.startswith(ENDS):
            is_first = False
        elif is_first:
            command, text = found[-1]
            found[-1] = command, f"{text} {_without_numbers(line)}".strip()
    return found


def _without_numbers(line: str) -> str:
    words = NUMBER.sub("#", RECEIPT.sub("receipt", line)).split()
    return " ".join(PLURAL.get(word, re.sub(r"(?<=\w{2})s(?=\W*$)", "", word)) for word in words)
