"""Scans of many brokers as one answer."""
