"""`python -m streams.cli` is `docdelta`."""

from streams.cli.main import run

run()
