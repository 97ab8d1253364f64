"""The index as commands read it: they wait seconds, not minutes, and say where it was looked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.errors import NotPrepared, NotReachable, Unavailable
from streams.ports import VectorIndex
from streams.settings import Settings

PATIENCE_SECONDS = 8.0
"""How long the first answer of a server is waited for."""


def require_index(settings: Settings) -> None:
    """Raise NotPrepared when the settings name no index that outlives this command."""
    if not settings.qdrant.url and settings.qdrant.path is None:
        raise NotPrepared("no index to read: set qdrant.url or qdrant.path, or run docdelta dev in this folder")


@asynccontextmanager
async def reading_index(settings: Settings) -> AsyncIterator[VectorIndex]:
    """Give the index, closed at the end. Raises NotPrepared (none named) and NotReachable (no answer), naming the place.

    A server is asked for the alias first, within `PATIENCE_SECONDS`: the index's own patience is made for workers.
    """
    from streams.index.qdrant import open_index

    require_index(settings)
    place = settings.qdrant.url or settings.qdrant.path
    index = open_index(settings.qdrant)
    try:
        if settings.qdrant.url:
            await asyncio.wait_for(index.alias_target(settings.qdrant.alias), PATIENCE_SECONDS)
        yield index
    except TimeoutError as error:
        raise NotReachable(f"index {place} gives no answer within {PATIENCE_SECONDS:.0f} s; check qdrant.url") from error
    except Unavailable as error:
        raise NotReachable(f"index {place} gives no answer: {error.message}; check qdrant.url, and that it runs") from error
    finally:
        await index.close()
