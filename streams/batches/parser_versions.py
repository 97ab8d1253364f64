"""Which parsers made what a batch holds: another version moves boundaries, so an upgrade must be seen, and be somebody's decision.

Parsing comes before all batches, so versions are not in a policy's fingerprint: [parsed] keeps what older parsers made until a
document is edited, and a new batch is built from it. A batch therefore inherits the versions of the one it replaces;
`docdelta reindex --all` sends every document through the parser again and notes that in all live batches.
"""

from __future__ import annotations

from chunking.parsers import PARSERS
from schemas.batch import LIVE_STATES, BatchRecord
from streams.batches.ledger import Clerk, Outrun, with_state

_TRIES = 5
"""How often other operators may come between."""


def running_parsers() -> tuple[str, ...]:
    """Return the parsers of this release, as ``markdown/1``, sorted."""
    return tuple(sorted({parser.versioned_name for parser in PARSERS.values()}))


def parser_changes(batch: BatchRecord, running: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Return what parses otherwise now than when a batch's documents were parsed, as ``markdown/1 → markdown/2``.

    Nothing where the batch does not say (it was made by an earlier release), and for parsers that came since.
    """
    now = dict(_split(name) for name in (running_parsers() if running is None else running))
    then = dict(_split(name) for name in batch.parsers)
    changed = sorted(name for name in then.keys() & now.keys() if then[name] != now[name])
    return tuple(f"{name}/{then[name]} → {name}/{now[name]}" for name in changed)


def advice(batch: BatchRecord, running: tuple[str, ...] | None = None) -> str:
    """Return what to tell an operator of a batch's parsers, or nothing."""
    changes = parser_changes(batch, running)
    if not changes:
        return ""
    return (
        f"batch {batch.batch} was parsed otherwise ({', '.join(changes)}): documents change as they are edited; "
        "docdelta reindex --all brings all of them over at once"
    )


def note_reindexed(clerk: Clerk, running: tuple[str, ...] | None = None) -> list[str]:
    """Note in every live batch that all documents were sent through the parsers of this release. Returns the batches noted.

    Raises Outrun when others keep changing [batches] meanwhile. Safe to run twice.
    """
    wanted = running_parsers() if running is None else running
    noted: list[str] = []
    for attempt in range(_TRIES):
        ledger = clerk.read()
        try:
            for batch in ledger.in_order():
                if batch.state in LIVE_STATES and batch.parsers != wanted:
                    ledger = clerk.claim(ledger, with_state(ledger.batches[batch.batch], parsers=wanted))
                    noted.append(batch.batch)
        except Outrun:
            if attempt == _TRIES - 1:
                raise
        else:
            break
    return noted


def _split(versioned: str) -> tuple[str, str]:
    name, _, version = versioned.rpartition("/")
    return name, version
