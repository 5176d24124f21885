"""A real object store on loopback (``scripts/servers/s3-server``), and what is in it, asked by a client of its own."""

import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from manifests import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "servers" / "s3-server"
NEEDS_GO = 3
"""Exit code of the script where the server can be neither found nor built."""


@dataclass(frozen=True)
class ObjectStore:
    """A running server."""

    endpoint: str
    client: Any = field(repr=False)

    def bucket(self) -> str:
        """A new, empty bucket."""
        name = f"test-{secrets.token_hex(6)}"
        self.client.create_bucket(Bucket=name)
        return name

    def put(self, location: str, data: bytes = b"") -> None:
        """Puts an object, over what is there."""
        bucket, key = split(location)
        self.client.put_object(Bucket=bucket, Key=key, Body=data)

    def get(self, location: str) -> bytes:
        """All bytes of an object."""
        bucket, key = split(location)
        data = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        assert isinstance(data, bytes)
        return data

    def upload(self, root: Path, location: str) -> str:
        """Puts every file below a directory; returns the location."""
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda path: self.put(f"{location}/{path.relative_to(root).as_posix()}", path.read_bytes()), files))
        return location

    def files(self, location: str) -> dict[str, bytes]:
        """Every object below a prefix, by its key from there on."""
        bucket, prefix = split(location)
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/" if prefix else "")
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {key.removeprefix(f"{prefix}/"): self.get(f"s3://{bucket}/{key}") for key in keys}


def split(location: str) -> tuple[str, str]:
    """Bucket and key."""
    bucket, _, key = location.removeprefix("s3://").partition("/")
    return bucket, key


def missing() -> str | None:
    """Why there is no server here, or None; it is built where that is possible."""
    done = subprocess.run([SCRIPT, "binary"], capture_output=True, text=True, check=False)
    if done.returncode == NEEDS_GO:
        return done.stderr.strip()
    assert done.returncode == 0, done.stderr
    return None


@contextlib.contextmanager
def running(state: Path) -> Iterator[ObjectStore]:
    """Starts a server; while it runs, the environment leads every client to it."""
    around = {**os.environ, "S3_SERVER_STATE": str(state)}
    # The server inherits what it is started with: a pipe would never end.
    reported = state.with_suffix(".exports")
    with reported.open("w") as output:
        subprocess.run([SCRIPT, "start"], env=around, stdout=output, check=True)
    exports = dict(re.findall(r"(\w+)=(\S+)", reported.read_text()))
    before = {name: os.environ.get(name) for name in exports}
    os.environ.update(exports)
    try:
        client = boto3.session.Session().client("s3", config=Config(s3={"addressing_style": "path"}))
        yield ObjectStore(exports["AWS_ENDPOINT_URL_S3"], client)
    finally:
        subprocess.run([SCRIPT, "stop"], env=around, check=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
