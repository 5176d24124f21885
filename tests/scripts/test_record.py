"""``scripts/demo/record`` runs each command of a transcript again."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

import pytest
from manifests import REPOSITORY

EXAMPLES = REPOSITORY / "docs" / "examples"


@pytest.fixture
def record() -> ModuleType:
    loader = SourceFileLoader("record", str(REPOSITORY / "scripts" / "demo" / "record"))
    spec = spec_from_loader("record", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_command_of_a_transcript_is_known(record: ModuleType) -> None:
    commands = record.transcripts()
    assert len(commands) > 5
    for name, each in commands.items():
        assert len(each) == (EXAMPLES / f"{name}.txt").read_text().count("\n$ scripts/") + 1
    assert [command.splitlines()[-1].split()[:2] for command in commands["spark-questions"]] == [
        ["scripts/demo/spark_questions.py", "fixtures/kafka27-mixed"],
        ["--topic", "mixed"],
    ]


def test_a_transcript_of_two_commands_has_both(record: ModuleType) -> None:
    commands = record.commands_of("$ scripts/run \\\n    --first\nprinted\n$ snaprebuild scan\n\n$ scripts/second 'a b'\n")
    assert commands == ["scripts/run \\\n    --first", "scripts/second 'a b'"]


def test_what_both_print_is_written_and_a_failure_changes_nothing(record: ModuleType) -> None:
    text = record.recorded(["echo \\\n    one  ", "echo 'two  three '"])
    assert text == "$ echo \\\n    one  \none\n\n$ echo 'two  three '\ntwo  three\n"
    with pytest.raises(record.subprocess.CalledProcessError):
        record.recorded(["echo one", "false"])
