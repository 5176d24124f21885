"""How the command of this process reaches object stores, and what its paths name there."""

from __future__ import annotations

import os
import secrets

import click

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.errors import UsageError
from snaprebuild.storage.store import S3Settings, absolute, is_object

__all__ = ["check_settings", "locations_of", "stores_of"]

_STORES = "snaprebuild.stores"


def stores_of(s3: S3Options) -> S3Settings:
    """How object stores are reached in this run, made at the first call: its limits count for all that the command reads.

    Raises:
        UsageError: the endpoint is no URL, or holds what documents would show: a user, a password, a query; or no one would pay.
    """
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return _settings_of(s3)
    if _STORES not in ctx.meta:
        ctx.meta[_STORES] = _settings_of(s3)
    stores: S3Settings = ctx.meta[_STORES]
    return stores


def _settings_of(s3: S3Options) -> S3Settings:
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
    )
    check_settings(settings)
    return settings


def check_settings(settings: S3Settings) -> None:
    """Makes sure that the settings of object stores go together, and that the address of the store holds no password.

    Receipts and the next command name the address.

    Raises:
        UsageError: they do not, or it does.
    """
    if settings.anonymous and settings.requester_pays:
        raise UsageError("s3_anonymous: an anonymous request has no account that pays, as s3_requester_pays asks for")
    for name in ("max_requests", "max_read_bytes"):
        limit = getattr(settings, name)
        if limit is not None and limit < 1:
            raise UsageError(f"{name}: expected 1 or more, found {limit}")
    if settings.endpoint_url is not None:
        _check_endpoint(settings.endpoint_url)


def _check_endpoint(url: str) -> None:
    from urllib.parse import urlsplit  # most runs name no endpoint

    expected = "--s3-endpoint-url: expected http://HOST:PORT or https://HOST, without user, password, query or fragment"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(expected) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in url or "?" in url or "#" in url or port == 0:
        raise UsageError(expected)  # without the URL: it may hold a password


def locations_of(paths: list[str]) -> list[str]:
    """Files as they were typed, and objects by their location.

    Raises:
        UsageError: ``s3://`` names no object, or a path is a directory.
    """
    for path in paths:
        if not is_object(path) and os.path.isdir(path):
            raise UsageError("is a directory; name the files in it", path=path)
    return [absolute(path) if is_object(path) else path for path in paths]
