"""A selection that matches nothing shows what there is, and a value that names something absent is a usage error."""

from __future__ import annotations

import pytest
from in_process import snaprebuild
from manifests import FIXTURES

MIXED = FIXTURES / "kafka27-mixed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topic", "mixed-0"), "no topic matches 'mixed-0' (4 partitions found); did you mean `--topic mixed --partition 0`?"),
        (("--topic", "mix"), "no topic matches 'mix' (4 partitions found); did you mean `--topic mixed`?"),
        (("--topic", "zzz"), "no topic matches 'zzz' (4 partitions found); topics: deleted, logappend, mixed, plain"),
        (("--partition", "7"), "no partition 7 of the selected topics (4 partitions found; partitions of these topics: 0)"),
    ],
)
def test_nothing_is_selected(options: tuple[str, ...], message: str) -> None:
    for verb in ("scan", "plan", "verify", "cluster source"):
        run = snaprebuild(*verb.split(), MIXED, *options)
        assert run.exit_code == 1
        assert f": {message} (nothing-found)\n" in run.stderr, verb
