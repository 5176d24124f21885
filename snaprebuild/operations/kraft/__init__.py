"""Metadata logs of KRaft: whether one is sound, and where its start would move."""
