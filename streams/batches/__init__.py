"""Batches: all chunks of one policy version, and the life they lead."""
