"""A broker starts after each verb ran with HOME, temporary files and the current directory in its log directory."""

import re
from pathlib import Path

import pytest
from command import snaprebuild_process
from created_names import created_names
from kafka_node import KafkaNode
from log_dirs import snapshot_name
from planted_log import MISSING, plant_old_log

pytestmark = pytest.mark.broker

TOPIC = "repaired"
READING = ("scan", "plan", "verify", "inspect stats", "inspect transactions", "cluster source")


@pytest.mark.parametrize("version", [pytest.param("3.9.2", marks=pytest.mark.night), "4.3.1"])
def test_a_broker_starts_after_each_verb(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaNode(tmp_path / "node", version=version) as node:
        plant_old_log(node, {"retention.ms": -1}, (TOPIC,))
        with monkeypatch.context() as environment, created_names(node.log_dir) as created:
            for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
                environment.setenv(name, str(node.log_dir))
            for verb in READING:
                assert snaprebuild_process(verb, node.log_dir, cwd=node.log_dir).exit_code in (0, 1), verb
            refused = snaprebuild_process("before-start", node.log_dir, cwd=node.log_dir)
            assert (refused.exit_code, f"in the log directory {node.log_dir}" in refused.stderr) == (2, True), refused
            sub = snaprebuild_process(
                "before-start", node.log_dir, "--receipt", node.log_dir / "receipts" / "r.jsonl", cwd=node.log_dir
            )
            assert sub.exit_code == 2, "the directory of a document must exist"
            done = snaprebuild_process(
                "before-start", node.log_dir, "--receipt", tmp_path / "r.jsonl", "--", "pwd", cwd=node.log_dir
            )
            assert (done.exit_code, done.stdout) == (0, f"{node.log_dir}\n"), done
        written = {snapshot_name(offset) for offset in MISSING}
        foreign = {Path(path).name for path in created} - written - {f"{name}.tmp" for name in written}
        assert foreign <= {".lock", ".lock.tmp"}
        node.start()
        node.produce(TOPIC, 10)
        node.stop_all()

        (node.log_dir / "snaprebuild").mkdir()  # what would have happened
        with pytest.raises(AssertionError, match=re.escape("'snaprebuild' is not in the form of topic-partition")):
            node.start()
