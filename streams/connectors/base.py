"""What a connector is: a view of the outside world that becomes DocumentChanges, and the port they leave through.

A connector has two halves. *Plan* is pure: what was sent before + what is there now → what to send. *Execute* sends and
remembers, in this order: ① write down the revisions about to be used ② send, await the broker ③ write down what was confirmed.
A crash between ① and ③ leaves revisions that may or may not have been sent; the next plan goes above them, and a document
whose content is the same costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from schemas.document_change import DocumentChange
from streams.errors import DocdeltaError

Confirmed = Callable[[DocumentChange, DocdeltaError | None], None]
"""Called once a change, in any order: with None when the broker has it, with the error when that is refused or not known."""


class ChangeSender(Protocol):
    """Where a connector's changes go. The command line's is `streams.connectors.sender.KafkaSender`."""

    def send(self, changes: Iterable[DocumentChange], confirmed: Confirmed) -> None:
        """Send every change and return when each has been confirmed or refused. Raises NotReachable if the broker is away."""
        ...
