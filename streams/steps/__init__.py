"""The pure steps: a record and what is remembered of it give a decision. No I/O, no clock, no client."""
