"""Licences as SPDX writes them, from what packages of Python and of Debian say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.message import Message

__all__ = ["all_of", "of_debian", "of_distribution"]

CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Classifiers after ``License :: OSI Approved ::``. ``BSD License`` names no single one: the text decides."""

DEBIAN = {"Expat": "MIT", "public-domain": "LicenseRef-public-domain", "PD": "LicenseRef-public-domain"}
"""Short names in Debian's machine-readable copyright files that SPDX writes otherwise."""

WORDS = (
    (r"GCC RUNTIME LIBRARY EXCEPTION", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    (r"GNU C Library is free software.*?Lesser General Public\s+License.*?version 2\.1 of the License, or", "LGPL-2.1-or-later"),
    (r"Julian R?\.? ?Seward", "bzip2-1.0.6"),
)
"""Words that only the text of one licence has, and its name: for packages whose copyright file names none."""

SPDX_NAMES = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "PSF-2.0", "Zlib"}
"""SPDX names that authors and Debian use unchanged."""


def of_distribution(metadata: Message, notice: str) -> str:
    """The licence of a package of Python.

    Args:
        metadata: its METADATA.
        notice: the text of its licence files.

    Raises:
        ValueError: it names no licence that is listed here.
    """
    if expression := metadata.get("License-Expression"):
        return expression
    classified = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or [] if each.startswith("License :: OSI")]
    names = [_of_bsd(notice) if each == "BSD License" else CLASSIFIERS.get(each) for each in classified]
    if not names:
        names = [name] if (name := _short_name((metadata.get("License") or "").strip())) else []
    if not names or None in names:
        raise ValueError(f"{metadata['Name']}: no licence is known by the names {classified or metadata.get('License')}")
    return all_of(filter(None, names))


def _of_bsd(notice: str) -> str:
    return "BSD-3-Clause" if re.search(r"Neither the name", notice, re.IGNORECASE) else "BSD-2-Clause"


def _short_name(text: str) -> str | None:
    """The identifier for a free text, such as ``Apache License 2.0`` or ``MIT``."""
    if re.fullmatch(r"Apache(?: Software)? License,? (?:Version )?2\.0", text):
        return "Apache-2.0"
    name = text.removesuffix(" License")
    return name if name in SPDX_NAMES else None


def of_debian(package: str, notice: str) -> str:
    """The licence of what a package of Debian installs.

    A copyright file in Debian's format covers the whole source, also its tests and build scripts: the licence of ``Files: *`` is that
    of the library. In another one the words of the licence are looked for.

    Raises:
        ValueError: the copyright file shows no licence that is listed here.
    """
    if match := re.search(r"^Files: \*\n(?:(?!\n\n).)*?^License: *(\S[^\n]*)$", notice, re.MULTILINE | re.DOTALL):
        names = [_of_short_name(each) for each in re.split(r",? and |, ", match[1].strip())]
        if None not in names:
            return all_of(filter(None, names))
    for words, name in WORDS:
        if re.search(words, notice, re.DOTALL):
            return name
    raise ValueError(f"{package}: its copyright file shows no known licence{f': {match[1]}' if match else ''}")


def _of_short_name(name: str) -> str | None:
    """Debian's ``GPL-2+`` is SPDX's ``GPL-2.0-or-later``."""
    if name in DEBIAN:
        return DEBIAN[name]
    if match := re.fullmatch(r"(L?GPL)-(\d)(?:\.(\d))?(\+?)", name):
        return f"{match[1]}-{match[2]}.{match[3] or 0}-{'or-later' if match[4] else 'only'}"
    return name if name in SPDX_NAMES else None


def all_of(expressions: Iterable[str]) -> str:
    """One expression for parts that are used together; each term once, in order."""
    terms = []
    for expression in expressions:
        if re.search(r"[ )]OR[ (]", expression):
            terms.append(f"({expression})" if expression != f"({expression[1:-1]})" else expression)
        else:
            terms += expression.split(" AND ")
    return " AND ".join(sorted(dict.fromkeys(terms)))
