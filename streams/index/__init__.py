"""The vector index: `VectorIndex` (streams.ports) on Qdrant in three modes (`qdrant`) and in plain dicts (`memory`)."""
