"""Simulations of KIP-903 and KAFKA-14932. Only their commands import them."""
