"""Lists everything inside the one file: a bill of materials (CycloneDX), and the notices."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import cast

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from debian_packages import owner
from one_file import Tree
from packageurl import PackageURL
from spdx_licenses import all_of, of_debian, of_distribution

__all__ = ["Part", "bill_of_materials", "notices", "parts_of"]

LICENSE_FILE = re.compile(r"(LICEN[SC]E|COPYING|NOTICE|AUTHORS)", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """One thing that somebody else made, or that we did."""

    name: str
    version: str
    license: str
    """License in the form of SPDX, from the metadata of the package."""
    url: PackageURL
    files: tuple[Path, ...]
    """Below the tree; none for what is compiled into the launcher, or not listed one by one."""
    notice: str
    """The licence of the package, and the people whom it names."""


def parts_of(tree: Tree, archives: Sequence[Path]) -> list[Part]:
    """Lists the parts of the tree and of the launcher.

    Args:
        tree: as it will be unpacked.
        archives: static libraries that the launcher was linked with.

    Raises:
        RuntimeError: a library came with no package of this system.
        ValueError: a part has no licence that is known.
    """
    home = tree.root / "lib" / Path(tree.python).name
    parts = [_python(tree), *(_distribution(each) for each in importlib.metadata.distributions(path=[str(home / "site-packages")]))]
    own = (tree.root / tree.command, tree.root / tree.python)
    parts = [replace(each, files=own) if each.name == "snaprebuild" else each for each in parts]
    of_system: dict[str, list[Path]] = {}
    for name, place in tree.libraries.items():
        if not name.startswith("libpython"):
            of_system.setdefault(_package_of(place), []).append(tree.root / "lib" / name)
    for archive in archives:
        of_system.setdefault(_package_of(archive), [])
    parts += [_system_package(package, files) for package, files in of_system.items()]
    return sorted(parts, key=lambda part: (part.name.lower(), part.version))


def _python(tree: Tree) -> Part:
    """The interpreter with its standard library. Debian's has fixes that its upstream version does not show."""
    version = ".".join(map(str, sys.version_info[:3]))
    url = PackageURL("generic", None, "python", version)
    package = owner(Path(os.path.realpath(sys.executable)))
    if package:
        source, version = _source_and_version(package)
        url = PackageURL("deb", "debian", package.split(":", maxsplit=1)[0], version, {"upstream": source})
    notice = (Path(sysconfig.get_path("stdlib")) / "LICENSE.txt").read_text()
    files = [tree.root / tree.interpreter, *(tree.root / "lib").glob("libpython*")]
    return Part("CPython", version, "PSF-2.0", url, tuple(files), notice)


def _distribution(distribution: importlib.metadata.Distribution) -> Part:
    reported = cast("Message", distribution.metadata)  # its declared type has no `get`
    name = reported["Name"]
    version = reported["Version"]
    folder = Path(str(distribution.locate_file("")))
    paths = (path for path in folder.glob("*.dist-info") if importlib.metadata.PathDistribution(path).metadata["Name"] == name)
    own = next(paths, None)
    if own is None:
        raise RuntimeError(f"{name} {version} has no *.dist-info directory in {folder}: its licence cannot be read")
    texts = [path for path in sorted(own.rglob("*")) if path.is_file() and LICENSE_FILE.match(path.name)]
    notice = "\n\n".join(path.read_text(errors="replace") for path in texts)
    terms = of_distribution(reported, notice)
    natives = [
        path for path in folder.rglob("*") if re.search(r"\.so(\.|$)", path.name) and _belongs(path.relative_to(folder), name)
    ]
    return Part(
        name,
        version,
        terms,
        PackageURL("pypi", None, name.lower(), version),
        tuple(sorted(natives)),
        notice or f"Licence: {terms}",
    )


def _belongs(path: Path, distribution: str) -> bool:
    return path.parts[0].split(".")[0].lower() == distribution.lower().replace("-", "_")


def _package_of(place: Path) -> str:
    """The package of this system that a file came with."""
    package = owner(place)
    if package is None:
        raise RuntimeError(f"{place}: no package of this system has it, so its licence is not known")
    return package


def _system_package(package: str, files: list[Path]) -> Part:
    source, version = _source_and_version(package)
    name = package.split(":", maxsplit=1)[0]
    notice = (Path("/usr/share/doc") / name / "copyright").read_text(errors="replace")
    url = PackageURL("deb", "debian", name, version, {"upstream": source})
    return Part(name, version, of_debian(name, notice), url, tuple(files), notice)


def _source_and_version(package: str) -> list[str]:
    """The source package of an installed package, and its version."""
    query = ["dpkg-query", "-W", "-f", "${source:Package}\n${Version}", package]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()


def _components(parts: list[Part], tree: Tree) -> Iterator[Component]:
    for part in parts:
        inner = [
            Component(
                name=path.relative_to(tree.root).as_posix(),
                type=ComponentType.FILE,
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())],
                bom_ref=f"{part.url}#{path.relative_to(tree.root).as_posix()}",
            )
            for path in part.files
        ]
        yield Component(
            name=part.name,
            version=part.version,
            type=ComponentType.LIBRARY,
            purl=part.url,
            bom_ref=str(part.url),
            licenses=[LicenseExpression(part.license)],
            components=inner,
        )


def bill_of_materials(parts: list[Part], tree: Tree, name: str, version: str, sha256: str, epoch: int) -> str:
    """CycloneDX 1.6 as JSON.

    Args:
        parts: what is inside, from `parts_of`.
        tree: which they lie in.
        name: of the one file.
        version: of this project.
        sha256: of the one file, hexadecimal.
        epoch: seconds since 1970, of the release.
    """
    bom = Bom(components=_components(parts, tree), serial_number=uuid.uuid5(uuid.NAMESPACE_OID, sha256))
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.metadata.component = Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=name,
        licenses=[LicenseExpression(all_of(part.license for part in parts))],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
    )
    bom.register_dependency(bom.metadata.component, bom.components)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"


def notices(parts: list[Part]) -> str:
    """One text: what is inside, and under which terms each part is."""
    table = [f"{part.name} {part.version}: {part.license}" for part in parts]
    texts = [f"{'=' * 100}\n{part.name} {part.version}\n{'=' * 100}\n\n{part.notice.strip()}\n" for part in parts]
    head = "What the self-contained file and the tree of snaprebuild have in them, and the terms of each part.\n"
    return "\n".join([head, *table, "", *texts])
