"""The description of an option: one value from which help, reference pages and the manual page are made."""

from __future__ import annotations

from typing import Any, NamedTuple

from typer.models import OptionInfo

__all__ = ["PATHS", "DescribedOption", "OptionText", "option"]

PATHS = ("FILE", "FILE.prom", "DIR", "[ID=]DIR", "RECEIPT")
"""Forms of values that are paths: an option with one of them takes a path."""

DEFAULT_CHARACTERS_MAX = 40
"""A longer default is not in the short help."""

UNREMARKABLE_DEFAULTS = ("no", "none", "all")
"""Defaults that the short help leaves out."""


class OptionText(NamedTuple):
    """The description of an option, a setting or an assumption.

    Attributes:
        short: one sentence without its full stop.
        default: what happens without the option, without a full stop.
        details: further sentences.
        risk: what may go wrong with the option, without a full stop.
        warns: the short help shows the risk, too.
    """

    short: str
    default: str
    details: str = ""
    risk: str = ""
    warns: bool = False

    @property
    def whole(self) -> str:
        """All sentences."""
        sentences = [f"{self.short}."]
        if self.details:
            sentences.append(self.details)
        if self.risk:
            sentences.append(f"Risk: {self.risk}.")
        sentences.append(f"Default: {self.default}.")
        return " ".join(sentences)

    @property
    def brief_of_flag(self) -> str:
        """The line of the short help for an option without a value: brackets hold values."""
        return f"{self.short}. Risk: {self.risk}" if self.warns else self.short

    @property
    def brief(self) -> str:
        """The line of the short help: the first sentence, and the default where it is short."""
        text = self.brief_of_flag
        if self.default not in UNREMARKABLE_DEFAULTS and len(self.default) <= DEFAULT_CHARACTERS_MAX:
            text += f" [{self.default}]"
        return text


class DescribedOption(OptionInfo):
    """An option of typer with its description.

    Attributes:
        text: from which its help is made.
    """

    def __init__(self, names: tuple[str, ...], text: OptionText, **settings: Any) -> None:
        super().__init__(default=..., param_decls=names, help=text.whole, **settings)
        self.text = text


def option(
    *names: str, short: str, default: str, details: str = "", risk: str = "", warns: bool = False, **settings: Any
) -> DescribedOption:
    """Declares an option in an ``Annotated`` type.

    Args:
        names: such as ``--topic``.
        short: one sentence without its full stop.
        default: what happens without the option, without a full stop.
        details: further sentences.
        risk: what may go wrong with the option, without a full stop.
        warns: the short help shows the risk, too.
        settings: of ``typer.Option``.
    """
    text = OptionText(short=short, default=default, details=details, risk=risk, warns=warns)
    return DescribedOption(names, text, show_default=False, **settings)
