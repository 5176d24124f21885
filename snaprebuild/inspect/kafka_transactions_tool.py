"""Kafka's own tool for transactions: the words of its commands."""

from __future__ import annotations

from snaprebuild.shell_words import shell_word

__all__ = ["TOOL", "find_hanging_command"]

TOOL = "kafka-transactions.sh --bootstrap-server HOST:PORT"
"""Kafka's tool, to be run with the address of any broker in place of HOST:PORT."""


def find_hanging_command(topic: str, partition: int) -> str:
    """The command that asks the coordinators for the hanging transactions of a partition, for brokers since 3.0."""
    return f"{TOOL} find-hanging --topic {shell_word(topic)} --partition {partition}"
