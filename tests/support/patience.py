"""How long a test waits for a state before it counts as one that never comes. Never a measure: a machine may be slow."""

PATIENCE = 240.0
