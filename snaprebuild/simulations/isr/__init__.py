"""A simulated cluster of three brokers and one partition (KIP-903)."""
