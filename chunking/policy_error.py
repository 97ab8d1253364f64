"""PolicyError, apart from what raises it: who only has to tell the error needs no strategy, parser or model."""

from __future__ import annotations


class PolicyError(ValueError):
    """The policy can't be used. The message names file, line and field, and says what to do."""
