"""What a broker does next: at its start, and with uploads to remote storage."""
