"""Verbs on metadata logs (``__cluster_metadata-0``): what they hold, and what they say of the cluster."""
