"""No command advises an option that it was given: what that option would show is still unknown for another reason."""

from pathlib import Path

import pytest
from command import snaprebuild
from log_dirs import copy_of

SETTINGS = {
    "remote storage is on": "remote.log.storage.system.enable=true\ninter.broker.protocol.version=3.6\n",
    "remote storage is off": "remote.log.storage.system.enable=false\n",
    "nothing about remote storage": "",
}
VERBS = ("scan", "plan", "verify", "rebuild --dry-run", "before-start --dry-run", "plan --to", "stage --dry-run --to")
ADVICE = ("(--server-properties", "with --server-properties", "name the --server-properties", "--kafka-release shows")


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("verb", VERBS)
def test_no_advice_of_a_given_option(verb: str, settings: str, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    properties = tmp_path / "server.properties"
    properties.write_text(f"broker.id=1\nzookeeper.connect=localhost:1\nlog.dirs={logs}\n{SETTINGS[settings]}")
    words: list[object] = [*verb.split()]
    if words[-1] == "--to":
        words.append(tmp_path / "staged")
    run = snaprebuild(*words, "--server-properties", properties, "--kafka-release", "3.9.2")
    told = run.text.partition("Next: ")[2] + " ".join(run.stderr.split())
    assert run.exit_code in (0, 1), run
    assert not [advice for advice in ADVICE if advice in told]
