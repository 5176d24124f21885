"""Options of the data sources in place of arguments of the library and options of the command, with which they share sentences."""

from __future__ import annotations

import re

from snaprebuild.argument_names import with_arguments
from snaprebuild.spark import record_options, source_options
from snaprebuild.storage.store import MORE_REQUESTS

__all__ = ["OPTION_OF", "with_option_names"]

OPTION_OF = {
    re.sub("(?=[A-Z])", "_", name).lower(): name for name in (*record_options.OWN, *source_options.OWN) if not name.islower()
}
"""The option of each argument whose name has several words."""

_ARGUMENT = re.compile(rf"(?<![\w.'/-])(?:{'|'.join(sorted(OPTION_OF, key=len, reverse=True))})(?![\w./-])")
_OPTION = re.compile(rf"(?<![\w-])--({'|'.join(each.replace('_', '-') for each in OPTION_OF)})(?![\w-])")


def with_option_names(message: str) -> str:
    """A sentence that names options as the user of a data source writes them."""
    named = _OPTION.sub(lambda found: OPTION_OF[found[1].replace("-", "_")], message.replace(MORE_REQUESTS, ""))
    return _ARGUMENT.sub(lambda found: OPTION_OF[found[0]], with_arguments(named))
