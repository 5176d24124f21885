"""What a broker does next: with its directories at its start, and with uploads to remote storage."""
