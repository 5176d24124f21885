"""Options of verbs that announce copies to brokers."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.description import option

__all__ = ["ProduceTo", "ProducerConfig"]

ProduceTo = Annotated[
    str | None,
    option(
        "--produce-to",
        metavar="HOST:PORT[,...]",
        short="Bootstrap servers; produce the records of each copy to their __remote_log_metadata",
        details="Needs snaprebuild[kafka].",
        default="none",
    ),
]
ProducerConfig = Annotated[
    str | None,
    option(
        "--producer-config",
        metavar="FILE",
        short="librdkafka settings for --produce-to, one NAME=VALUE per line, such as security.protocol or sasl.password",
        default="none, an unencrypted connection",
    ),
]
