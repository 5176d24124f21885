"""Receipts of runs that wrote, and the commands that read them."""
