"""`python -m streams.cli` is `docdelta`."""

from streams.cli.start import run

run()
