"""Checks whether a replica may be a source: of snapshots, of copies in remote storage, of another replica."""
