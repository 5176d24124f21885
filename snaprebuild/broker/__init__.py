"""The next actions of a broker: with its directories at its start, and with uploads to remote storage."""
