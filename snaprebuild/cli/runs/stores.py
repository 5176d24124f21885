"""How the command of this process reaches object stores, and what its paths name there."""

from __future__ import annotations

import os
import secrets

import click

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.errors import UsageError
from snaprebuild.storage.store import S3Settings, absolute, check_settings, is_object

__all__ = ["locations_of", "stores_of"]

_STORES = "snaprebuild.stores"


def stores_of(s3: S3Options, region: str | None = None) -> S3Settings:
    """How object stores are reached in this run, made at the first call: its limits count for all that the command reads.

    Args:
        s3: the options.
        region: of the bucket; None for that of the SDK.

    Raises:
        UsageError: the endpoint is no URL, or holds what documents would show: a user, a password, a query; or no one would pay.
    """
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return _settings_of(s3, region)
    if _STORES not in ctx.meta:
        ctx.meta[_STORES] = _settings_of(s3, region)
    stores: S3Settings = ctx.meta[_STORES]
    return stores


def _settings_of(s3: S3Options, region: str | None) -> S3Settings:
    check_paths(None, s3_sse_c_key_file=s3.s3_sse_c_key_file)
    key_file = s3.s3_sse_c_key_file
    settings = S3Settings(
        endpoint_url=s3.s3_endpoint_url,
        path_style=s3.s3_path_style,
        profile=s3.s3_profile,
        anonymous=s3.s3_anonymous,
        requester_pays=s3.s3_requester_pays,
        sse_c_key_file=None if key_file is None else os.path.abspath(key_file),
        max_requests=s3.max_requests,
        max_read_bytes=s3.max_read_bytes,
        run=secrets.token_hex(8),
        region=region,
    )
    check_settings(settings)
    return settings


def locations_of(paths: list[str]) -> list[str]:
    """Files as they were typed, and objects by their location.

    Raises:
        UsageError: ``s3://`` names no object, or a path is a directory.
    """
    for path in paths:
        if not is_object(path) and os.path.isdir(path):
            raise UsageError("is a directory; name the files in it", path=path)
    return [absolute(path) if is_object(path) else path for path in paths]
