"""Pure chunking: bytes to Document, Document to chunks, chunks to ids, ids to a delta. No I/O, no clock, no client.

The way through: `parsers` make a `Document`; a strategy of `strategies` cuts it into passages; `identity` names them
(`Chunk`); `manifest` is the ordered list of what an index should hold; `diff` says what changed.
"""
