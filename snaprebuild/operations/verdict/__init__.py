"""May a replica be a source: what files, the metadata log and other replicas say, brought before the rules (``cluster.source_verdict``)."""
