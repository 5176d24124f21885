"""Pages of ``report`` for tests: the data in one, and documents that need no directory."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
from sentences import NONE_MISSING

from snaprebuild.snapshots.scan.scan_result import ScanTotals

HOSTILE = (
    *("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--<script>", '"><b>bold</b>'),
    *("a\u2028b\u2029c", "right\u202eleft", "nul\x00and\x1b[2J", "lone\udce9surrogate"),
    *("{{data}}{{script}}{{title}}", "&lt;amp&amp;"),
)
"""Names that try to leave their place in a page. Kafka allows none of them; a document may contain anything."""


class _Page(HTMLParser):
    """Takes a page apart as a browser does: what ends a script is for the parser to say."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.style = self.title = self.policy = ""
        self._tag, self._attributes, self._text = "", {}, ""  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""
        self._tag, self._attributes, self._text = tag, dict(attrs), ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.scripts.append((self._attributes, self._text))
        elif tag == "style":
            self.style = self._text
        elif tag == "title":
            self.title = self._text


def parsed(page: Path) -> _Page:
    """The parts of a page."""
    parser = _Page()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def data_of(page: Path) -> dict[str, Any]:
    """The data of a page; its policy allows its own script and style, and nothing else."""
    parts = parsed(page)
    (_, data), (attributes, script) = parts.scripts
    assert attributes == {}
    hashes = re.findall(r"'sha256-([^']+)'", parts.policy)
    assert hashes == [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, parts.style)]
    rest = re.sub(r"'sha256-[^']+'", "HASH", parts.policy)
    assert rest == "default-src 'none'; script-src HASH; style-src HASH; base-uri 'none'; form-action 'none'"
    value = json.loads(data)
    assert isinstance(value, dict)
    return value


def partition_of(page: Path, name: str) -> dict[str, Any]:
    """The page's row of the one partition of this name."""
    (found,) = [each for each in data_of(page)["partitions"] if each["topic_partition"] == name]
    assert isinstance(found, dict)
    return found


def scan_document(
    partitions: list[dict[str, Any]], findings: list[dict[str, Any]] | None = None, node_id: int = 1
) -> dict[str, Any]:
    """A document of ``scan``."""
    totals = totals_of(0, 0)
    missing = sum(len(each["missing_offsets"]) for each in partitions)
    affected = sum(bool(each["missing_offsets"]) for each in partitions)
    answer = f"{missing} snapshots missing in {affected} of {len(partitions)} partitions."
    counts = {"fates": 0, "topics_without_id": 0, "wrong": 0, "suspect": 0, "missing": missing}
    counts |= {"waiting": 0, "waiting_unknown": 0, "unread": 0}
    log_dir = {"path": "/kafka", "node_id": node_id, "cluster_id": "c", "directory_id": None, "shutdown": "clean", "held_by": None}
    log_dir |= {"cluster_kind": "zookeeper", "broker_epoch": None}
    return {
        "schema": "snaprebuild.scan/4",
        "snaprebuild": "0.1.0",
        "unread": 0,
        "unread_paths": [],
        "request": {"paths": ["/kafka"], "server_properties": None, "topics": [], "partitions": []},
        "run": {
            "at_ms": 1_795_262_400_000,
            "host": f"broker-{node_id}",
            "command": "snaprebuild scan /kafka",
            "cluster_ids": ["c"],
        },
        "totals": totals,
        "log_dirs": [{**log_dir, "totals": totals}],
        "topics": [],
        "partitions": partitions,
        "upload_attempts": {"interval": "30 s", "ways_to_stop": [], "not_looked_at": []},
        "findings": [{"reason": None, **each} for each in findings or []],
        "exit_code": 1 if missing else 0,
        "counts": counts,
        "answer": answer if missing else f"{NONE_MISSING}{len(partitions)} partitions.",
        "next_command": "snaprebuild plan /kafka" if missing else None,
    }


def totals_of(segments: int, size_bytes: int) -> dict[str, int]:
    """Sums of a scan."""
    return {**msgspec.structs.asdict(ScanTotals()), "segments": segments, "size_bytes": size_bytes}


def segments_of(sizes: list[int]) -> list[dict[str, int]]:
    """Segments of 100 offsets and these sizes, each modified an hour after the one before."""
    return [
        {"base_offset": index * 100, "size_bytes": size, "modified_ms": 1_795_262_400_000 + index * 3_600_000}
        for index, size in enumerate(sizes)
    ]


def scanned(
    topic: str,
    number: int = 0,
    *,
    segments: int = 5,
    missing: int = 0,
    topic_id: str | None = "TbEpDujbR1a9Y_KYwm3sPQ",
    size_bytes: int = 1 << 20,
    **changed: Any,
) -> dict[str, Any]:
    """A partition of a scan: segments of 100 offsets, of whose boundaries the first ones have no snapshot."""
    end = segments * 100
    state = {True: ("missing", "absent"), False: ("present", "kept")}
    boundaries: list[dict[str, Any]] = [
        {
            "offset": (index + 1) * 100,
            "is_log_end": index + 1 == segments,
            "state": state[index < missing][0],
            "entries": None if index < missing else 3,
            "at_next_start": state[index < missing][1],
            "reasons": [],
            "first_open_offset": None,
        }
        for index in range(segments)
    ]
    blocked = [
        {
            "base_offset": index * 100,
            "next_base_offset": index * 100 + 100,
            "size_bytes": size_bytes,
            "blockers": ["missing-snapshot"],
        }
        for index in range(missing)
    ]
    runs = [("blocked", 0, missing), ("after-blocked" if missing else "uploadable", missing, segments - 1)]
    upload = {
        "stuck_bytes": size_bytes * (segments - 1) if missing else 0,
        "stuck_bytes_after_rebuild": 0,
        "last_stable_offset": end,
        "last_stable_offset_at_least": end,
        "last_stable_offset_source": "a test",
        "last_stable_offset_at_most": end,
        "waiting_segments": 0,
        "blockers": [{"blocker": "missing-snapshot", "segments": missing, "freed_by": "rebuild"}] if missing else [],
        "blocked_segments": blocked,
        "rolled_segments": [
            {
                "base_offset": first * 100,
                "next_base_offset": last * 100,
                "segments": last - first,
                "size_bytes": (last - first) * size_bytes,
                "state": fate,
                "blockers": [],
            }
            for fate, first, last in runs
            if last > first
        ],
        "next_attempt": None,
    }
    partition = {
        "path": f"/kafka/{topic}-{number}",
        "log_dir": "/kafka",
        "topic_partition": f"{topic}-{number}",
        "topic": topic,
        "partition": number,
        "topic_id": topic_id,
        "form": "plain",
        "topic_kind": "ordinary",
        "is_compacted": False,
        "can_be_tiered": True,
        "is_tiered": False,
        "uploads_under_id_zero": False,
        "log_start_offset": 0,
        "log_end": {"offset": end, "source": "a test", "at_least": end},
        "high_watermark": end,
        "leader_epoch": 3,
        "totals": totals_of(segments, size_bytes * segments),
        "missing_offsets": [(index + 1) * 100 for index in range(missing)],
        "segments": segments_of([size_bytes] * segments),
        "boundaries": boundaries,
        "other_snapshots": [],
        "files": {"misnamed": [], "temporary": [], "irregular": [], "index_without_segment": [], "deleted": 0, "unknown": 0},
        "upload": upload,
        "next_start": None,
    }
    return {**partition, **changed}


def written(document: dict[str, Any], path: Path) -> Path:
    """A document as a file."""
    path.write_text(json.dumps(document))
    return path
