"""An option without its value: it never takes the next option as its value, so that ``--receipt --dry-run`` writes nothing."""

import click
import pytest
from command import snaprebuild

from snaprebuild.cli.answer import given_words
from snaprebuild.cli.main import verbs
from snaprebuild.cli.options.common import WholeNumber
from snaprebuild.shell_words import option_words


def options_with_a_value(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.is_flag and not each.count]


VERBS = sorted(verbs())
WHOLE = {
    verb: [each.opts[0] for each in options_with_a_value(verbs()[verb]) if isinstance(each.type, WholeNumber)] for verb in VERBS
}
NUMBERS = {verb: options for verb, options in WHOLE.items() if options}
"""Options that take a whole number, by the verb that has any."""


def error_of(verb: str, *words: str) -> str:
    """The usage error of a command line that is only parsed."""
    command = verbs()[verb]
    with pytest.raises(click.UsageError) as caught:
        command.make_context(verb, list(words))
    assert caught.value.ctx is not None
    return caught.value.format_message()


@pytest.mark.parametrize("verb", VERBS)
def test_no_option_takes_the_next_option_as_its_value(verb: str) -> None:
    options = [name for each in options_with_a_value(verbs()[verb]) for name in each.opts]
    assert {"--set", "--config", "--output", "--save-json"} < set(options)
    for option in options:
        assert error_of(verb, option) == f"{option} needs a value"
        for following in ("--dry-run", "--no-such-option", "-v", "--help"):
            expected = f"{option} needs a value; found '{following}'. If that is the value, write {option}={following}"
            assert error_of(verb, option, following) == expected
        # `install` and `before-start` take what follows -- off first.
        assert error_of(verb, option, "--", "logs").startswith(f"{option} needs a value")


@pytest.mark.parametrize("verb", NUMBERS)
def test_a_negative_number_is_a_number(verb: str) -> None:
    for option in NUMBERS[verb]:
        assert "needs a value" not in error_of(verb, option, "-99", "--no-such-option")


def test_options_before_the_verb_need_their_values_too() -> None:
    run = snaprebuild("--config", "--output", "scan", "fixtures/magic0")
    assert run.exit_code == 2
    assert run.stderr.startswith(
        "snaprebuild: --config needs a value; found '--output'. If that is the value, write --config=--output"
    )


def test_a_value_may_be_a_dash_or_begin_with_one_in_the_same_word() -> None:
    command = verbs()["rebuild"]
    assert command.make_context("rebuild", ["logs", "--receipt", "-"]).params["receipt"] == "-"
    assert command.make_context("rebuild", ["logs", "--receipt=--dry-run"]).params["receipt"] == "--dry-run"
    context = command.make_context("rebuild", ["--topic-partition", "a-0", "--", "--topic", "--dry-run"])
    assert list(context.params["paths"]) == ["--topic", "--dry-run"]
    assert not context.params["dry_run"]


def test_words_of_the_next_command_give_the_same_values() -> None:
    command = verbs()["rebuild"]
    given = ["-logs", "--topic=-orders", "--topic-partition=-orders-0", "--topic=plain"]
    with command.make_context("rebuild", [*given[1:], "--", given[0]]):
        words = given_words("paths", "topic", "topic_partition")
    assert words == ["./-logs", "--topic=-orders", "--topic", "plain", "--topic-partition=-orders-0"]
    context = command.make_context("rebuild", words)
    assert (*context.params["topic"], *context.params["topic_partition"]) == ("-orders", "plain", "-orders-0")
    assert option_words("--offsets", "5:10") == ["--offsets", "5:10"]
