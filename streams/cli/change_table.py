"""The change table: a line a settled event, as `docdelta dev` and the demo print it, and the totals below.

Columns: document, revision, outcome, chunks kept / added / updated / removed, embeddings computed, time from event to searchable.
"""

from __future__ import annotations

from datetime import datetime

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from schemas.receipt import Receipt
from streams.cli.output import stdout
from streams.repair.newest import SENT_AGAIN
from streams.words import counted

DOCUMENT_WIDTH = 36
_NUMBERS = ("kept", "added", "updated", "removed", "embedded")
_STYLES = {"indexed": "green", "unchanged": "dim", "stale": "yellow", "held": "yellow", "dead_lettered": "bold red"}
_OUTCOMES = {"dead_lettered": "dead-lettered"}


class ChangeTable:
    """Prints receipts as they come, one line each, columns in place (Chinese titles included), and counts them up."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or stdout()
        self._headed = False
        self.events = 0
        self.embedded = 0
        self.chunks: dict[tuple[str, str], int] = {}
        """Chunks that each document has in the index now, by (tenant, document)."""

    def add(self, receipt: Receipt) -> None:
        """Print one receipt as a line."""
        if not self._headed:
            self._headed = True
            self._console.print(Text(_heading(), style="bold"), soft_wrap=True)
        self.events += 1
        self.embedded += receipt.embedded
        # An event that the front door settled says nothing of chunks; one that reached the batch names all of them.
        if receipt.outcome in ("indexed", "unchanged") and receipt.batch:
            self.chunks[receipt.tenant_id, receipt.document_id] = receipt.kept + receipt.added + receipt.updated
        self._console.print(Text(change_line(receipt), style=_STYLES.get(receipt.outcome, "")), soft_wrap=True)
        if receipt.outcome in ("held", "dead_lettered") and receipt.reason:
            self._console.print(Text("    " + receipt.reason, style="red"), soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line between the lines of the table, such as what an editor just did."""
        self._console.print(Text(text, style="bold cyan"), soft_wrap=True)

    def totals(self) -> str:
        """Return the totals as a sentence: ``212 chunks in 12 documents, 9 embedded by 14 events``."""
        live = {key: count for key, count in self.chunks.items() if count}
        events = counted(self.events, "event")
        documents = counted(len(live), "document")
        return f"{counted(sum(live.values()), 'chunk')} in {documents}, {self.embedded} embedded by {events}"


def seconds_to_searchable(receipt: Receipt) -> float | None:
    """Return seconds from the event to the moment its effect can be found, or None where a time is missing.

    Counted from `occurred_at`; where the sender gave none, or the event was sent again by us, from when it reached [documents].
    """
    again = SENT_AGAIN.search(receipt.event_id) is not None
    began: datetime | None = receipt.received_at if again else receipt.occurred_at or receipt.received_at
    if began is None or receipt.settled_at is None:
        return None
    return max(0.0, (receipt.settled_at - began).total_seconds())


def change_line(receipt: Receipt) -> str:
    """Return a receipt as one line of the table, without colours."""
    outcome = "deleted" if receipt.deleted and receipt.outcome == "indexed" else _OUTCOMES.get(receipt.outcome, receipt.outcome)
    seconds = seconds_to_searchable(receipt)
    numbers = "  ".join(f"{getattr(receipt, name):>{len(name)}}" for name in _NUMBERS)
    time = "" if seconds is None else f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"
    return f"{fitted(receipt.document_id, DOCUMENT_WIDTH)}  {receipt.revision:>16}  {outcome:<13}  {numbers}  {time:>10}"


def _heading() -> str:
    return f"{'document':<{DOCUMENT_WIDTH}}  {'revision':>16}  {'outcome':<13}  {'  '.join(_NUMBERS)}  {'searchable':>10}"


def fitted(text: str, width: int) -> str:
    """Return a text at exactly `width` terminal cells: wide characters count as two, a long text keeps its end."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    end = text
    while cell_len(end) > width - 1:
        end = end[1:]
    return set_cell_size("…" + end, width)
