"""Whether the metadata logs of a quorum are sound, and where their start would move."""
