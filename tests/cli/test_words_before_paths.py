"""Words that stand for a path in the place of a command, or of an option: each group and each form of an argument has an answer."""

import click
import pytest
from command import snaprebuild

from snaprebuild.cli.main import verbs
from snaprebuild.cli.unknown_option import ARGUMENT_WORDS, OTHER_WORDS
from snaprebuild.cli.verb_command import FIRST_COMMANDS, PROGRAM, VerbGroup

ARGUMENT_FORMS = {
    (each.metavar or "").strip("[].") for command in verbs().values() for each in command.params if isinstance(each, click.Argument)
}


def test_each_group_has_a_command_for_a_path() -> None:
    assert FIRST_COMMANDS.keys() == VerbGroup.verbs.keys()
    for group, first in FIRST_COMMANDS.items():
        words = first.split()
        assert (words[0] if group == PROGRAM else f"{group} {words[0]}") in verbs()


@pytest.mark.parametrize("group", [group for group in FIRST_COMMANDS if group != PROGRAM])
def test_a_path_without_a_command(group: str) -> None:
    run = snaprebuild(group, "/var/lib/kafka/a b")
    assert run.exit_code == 2
    named = "dump" if group == "inspect" else FIRST_COMMANDS[group]
    assert (
        f"/var/lib/kafka/a b is a path, and a command comes before it: `snaprebuild {group} {named} '/var/lib/kafka/a b'`"
        in run.stderr
    )


def test_words_for_arguments_are_of_arguments() -> None:
    words = {word for form in ARGUMENT_FORMS for word in form.split()}
    assert {meant for _, arguments in ARGUMENT_WORDS for meant in arguments} <= words


def test_words_of_other_programs_lead_to_options() -> None:
    """Each word leads to an option that some command has, and to none that was removed."""
    options = {name for command in verbs().values() for each in command.params for name in each.opts}
    for word, meanings in OTHER_WORDS.items():
        for meaning in meanings:
            assert meaning.split()[0] in options, word
