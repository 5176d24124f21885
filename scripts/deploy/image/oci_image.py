"""A container image from nothing: one layer, which is the tree of a release, in the layout of OCI.

Python only, and the same bytes each time: no layer carries the time or the machine of the build.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

USER = 65532
"""Neither root nor anyone of the host; ``--user UID:GID`` replaces both by those of the broker. Without GID the group is 0."""

STATE = "/var/lib/snaprebuild"
"""A volume that every user may write to: receipts and everything else of a home directory. Never below a log directory."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DIRECTORIES = {"etc": 0o755, "opt": 0o755, "tmp": 0o1777, "var": 0o755, "var/lib": 0o755, "var/lib/snaprebuild": 0o1777}
PASSWD = f"root:x:0:0:root:/:/sbin/nologin\nsnaprebuild:x:{USER}:{USER}:snaprebuild:{STATE}:/sbin/nologin\n"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
INDEX = "application/vnd.oci.image.index.v1+json"


def layer(archive: Path, bill: Path, epoch: int) -> bytes:
    """The tree below ``/opt/snaprebuild``, its bill of materials, and the directories that a process expects. Not compressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as layer_archive:
        for name, mode in DIRECTORIES.items():
            layer_archive.addfile(_entry(name, mode, epoch, tarfile.DIRTYPE))
        _add(layer_archive, "etc/passwd", PASSWD.encode(), epoch)
        with tarfile.open(archive) as tree:
            for entry in tree:
                data = tree.extractfile(entry) if entry.isfile() else None
                entry.name = f"opt/snaprebuild/{entry.name.partition('/')[2]}".rstrip("/")
                layer_archive.addfile(entry, data)
        _add(layer_archive, "opt/snaprebuild/bill-of-materials.cdx.json", bill.read_bytes(), epoch)
    return out.getvalue()


def _entry(name: str, mode: int, epoch: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    entry.mtime = epoch
    entry.type = kind
    return entry


def _add(archive: tarfile.TarFile, name: str, data: bytes, epoch: int) -> None:
    entry = _entry(name, 0o444, epoch)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def config(version: str, architecture: str, diff_id: str, licenses: str, commit: str, epoch: int) -> dict[str, object]:
    """The configuration of the image. ``licenses`` are those of everything in the layer, as SPDX writes them."""
    created = f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}"
    labels = {
        "org.opencontainers.image.title": "snaprebuild",
        "org.opencontainers.image.description": "Checks and rebuilds producer snapshots of Apache Kafka partitions",
        "org.opencontainers.image.licenses": licenses,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.created": created,
    }
    if commit:
        labels["org.opencontainers.image.revision"] = commit
    return {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            # Receipts go to `snaprebuild` in the state directory.
            "Env": ["PATH=/opt/snaprebuild/bin", f"HOME={STATE}", f"XDG_STATE_HOME={os.path.dirname(STATE)}"],
            "Volumes": {STATE: {}},
            "Entrypoint": ["/opt/snaprebuild/bin/snaprebuild"],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": created, "created_by": "scripts/deploy/image/build"}],
    }


def image(release: Path, epoch: int) -> tuple[Path, str]:
    """Writes ``*.oci.tar`` into the directory of a release. Returns its path and the digest of its manifest."""
    (archive,) = release.glob("snaprebuild-*-linux-*.tar.gz")
    name = archive.name.removesuffix(".tar.gz")
    _, version, _, machine = name.split("-")
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    bill = release / f"{name}.cdx.json"
    plain = layer(archive, bill, epoch)
    diff_id = f"sha256:{hashlib.sha256(plain).hexdigest()}"
    licenses = json.loads(bill.read_text())["metadata"]["component"]["licenses"][0]["expression"]
    inner = config(version, ARCHITECTURES[machine], diff_id, licenses, os.environ.get("SOURCE_COMMIT", ""), epoch)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(_json(inner), CONFIG),
        "layers": [blob(gzip.compress(plain, 9, mtime=0), LAYER)],
    }
    listed = blob(_json(manifest), MANIFEST)
    listed["annotations"] = {"org.opencontainers.image.ref.name": f"snaprebuild:{version}"}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]}
    out = release / f"{name}.oci.tar"
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as image_archive:
        _add(image_archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}), epoch)
        _add(image_archive, "index.json", _json(index), epoch)
        for digest, data in sorted(blobs.items()):
            _add(image_archive, f"blobs/sha256/{digest}", data, epoch)
    return out, str(listed["digest"])


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> None:
    """Entry point."""
    if len(sys.argv) != 2:
        sys.exit("usage: scripts/deploy/image/build RELEASE_DIR")
    out, digest = image(Path(sys.argv[1]), int(os.environ["SOURCE_DATE_EPOCH"]))
    print(f"{out.name}: {digest}")


if __name__ == "__main__":
    main()
