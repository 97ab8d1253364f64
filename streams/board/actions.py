"""What an operator can do from the page. Each is what a command does, with the same functions, and is safe to repeat."""

from __future__ import annotations

import asyncio
from typing import Any

from schemas.dead_letter import DeadLetter
from streams.daemon import in_daemon_thread
from streams.errors import DocdeltaError
from streams.ports import VectorIndex
from streams.reading.why import InIndex, read_points
from streams.repair.dead_letters import FoundLetter, drop, find_letter, named, read_letters, replay
from streams.repair.reindex import Selection, reindex_documents
from streams.repair.timeline import Timeline, read_timeline
from streams.settings import Settings

SHOWN_BYTES = 4_000
"""Of a refused event so much is shown."""
SHOWN_MOMENTS = 40
AT_ONCE = 2
"""Readings and actions that run at a time: each is a few reads of the broker."""


class Actions:
    """The actions of one installation. `index` may be shared; it is only read."""

    def __init__(self, settings: Settings, index: VectorIndex | None) -> None:
        self._settings, self._index = settings, index
        self._room = asyncio.Semaphore(AT_ONCE)

    async def why(self, tenant: str, document: str) -> dict[str, Any]:
        """Return all that is known of a document, its text left out."""
        async with self._room:
            indexed, problems = await self._points(tenant, document)
            found = await in_daemon_thread(lambda: read_timeline(self._settings, tenant, document, indexed, problems), "why")
        return timeline_json(found)

    async def _points(self, tenant: str, document: str) -> tuple[InIndex | None, tuple[str, ...]]:
        if self._index is None:
            return None, ("no index is named",)
        try:
            return await read_points(self._index, self._settings.qdrant.alias, tenant, document), ()
        except DocdeltaError as error:
            return None, (str(error),)

    async def letter(self, name: str) -> dict[str, Any]:
        """Return a dead letter with the event that was refused. UsageError where there is none of that name."""
        async with self._room:
            found = await in_daemon_thread(lambda: find_letter(self._settings, name), "letter")
        return letter_json(found)

    async def replay(self, name: str) -> dict[str, str]:
        """Send the event of a letter through the front door again."""
        async with self._room:
            (told,) = await in_daemon_thread(
                lambda: replay(self._settings, named(read_letters(self._settings), self._settings, [name])), "replay"
            )
        return {"outcome": told.outcome, "said": told.reason}

    async def drop(self, name: str) -> dict[str, str]:
        """Close a letter for good; its record stays on the broker."""
        async with self._room:
            dropped = await in_daemon_thread(
                lambda: drop(
                    self._settings, named(read_letters(self._settings), self._settings, [name]), "dropped on the dashboard"
                ),
                "drop",
            )
        return {"outcome": "dropped" if dropped else "closed", "said": ""}

    async def reindex(self, tenant: str, document: str) -> dict[str, str]:
        """Send the newest event of a document once more, through every stage."""
        async with self._room:
            selection = Selection(documents=((tenant, document),))
            counts = await in_daemon_thread(lambda: reindex_documents(self._settings, selection), "reindex")
        return {"outcome": "sent" if counts.sent else "missing", "said": ""}


def letter_json(found: FoundLetter) -> dict[str, Any]:
    """Return a letter as the page shows it: what was refused and why, its bytes as text where they are text."""
    record: DeadLetter = found.record
    return {
        "id": found.letter.id,
        "state": found.letter.state,
        "error": record.error,
        "reason": record.reason,
        "stage": record.stage,
        "batch": record.batch,
        "attempts": record.attempts,
        "facts": dict(record.facts),
        "source": f"{record.topic}[{record.partition}]@{record.offset}",
        "key": readable(found.key),
        "value": readable(found.value),
        "bytes": len(found.value) if found.value is not None else None,
        "newest": found.newest.revision if found.newest is not None else None,
    }


def readable(raw: bytes | None) -> str | None:
    """Return the beginning of some bytes as text: as they are where they are UTF-8, otherwise in hex."""
    if raw is None:
        return None
    part = raw[:SHOWN_BYTES]
    more = f" … ({len(raw):,} bytes)" if len(raw) > SHOWN_BYTES else ""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return part[: SHOWN_BYTES // 4].hex(" ") + more
    return part.decode("utf-8", "ignore") + more


def timeline_json(found: Timeline) -> dict[str, Any]:
    """Return the timeline of a document as the page shows it: the newest moments, and no word of its text."""
    told = found.as_json()
    return {
        "state": told["state"],
        "explanation": told["explanation"],
        "stops": told["stops"],
        "fix": told["fix"],
        "chunks": len(found.why.indexed.chunks) if found.why.indexed is not None else None,
        "revisions": list(found.why.indexed.revisions) if found.why.indexed is not None else [],
        "timeline": told["timeline"][-SHOWN_MOMENTS:],
        "earlier": max(0, len(found.moments) - SHOWN_MOMENTS),
        "problems": list(found.why.problems),
    }
