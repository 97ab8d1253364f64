"""Manifests: the manifests table of one batch as values, with a lock a document, since chunker and indexer both write it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from chunking.manifest import Manifest
from streams.errors import InvariantBroken
from streams.patience import Patience
from streams.ports import Table


@dataclass(slots=True)
class _Shared:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


@dataclass(slots=True)
class Manifests:
    """One batch's manifests in this worker."""

    table: Table
    _locks: dict[bytes, _Shared] = field(default_factory=dict)

    def get(self, key: bytes) -> Manifest | None:
        """Return the manifest of a document, or None when nothing is remembered. InvariantBroken when it can't be read."""
        value = self.table.get(key)
        if value is None:
            return None
        try:
            return Manifest.from_bytes(value)
        except (ValueError, KeyError, TypeError) as error:
            raise InvariantBroken("table 'manifests' holds an unreadable value; rebuild the batch's state", key=key) from error

    async def put(self, key: bytes, manifest: Manifest) -> None:
        """Store a manifest; returns when the changelog has it."""
        await self.table.put(key, manifest.to_bytes())

    async def suspect(self, key: bytes, upto: int, patience: Patience) -> Manifest | None:
        """Mark a manifest as not what the index holds, so that the document's next record compares with the index itself.

        Returns the manifest as it stands. One that a revision above `upto` has changed since is left alone: it may be right.
        """
        async with self.lock(key):
            manifest = self.get(key)
            if manifest is not None and manifest.changed <= upto and not manifest.suspect:
                manifest = replace(manifest, suspect=True)
                await self._put_at_last(key, manifest, patience)
            return manifest

    async def trust(self, key: bytes, changed: int, patience: Patience) -> None:
        """Take the mark off again, if it is still on the manifest that revision `changed` made: the index holds just that now."""
        async with self.lock(key):
            manifest = self.get(key)
            if manifest is not None and manifest.suspect and manifest.changed == changed:
                await self._put_at_last(key, replace(manifest, suspect=False), patience)

    async def _put_at_last(self, key: bytes, manifest: Manifest, patience: Patience) -> None:
        # The write alone is repeated: a store may show the value before its changelog has it, and would seem to need none.
        await patience.hold(lambda: self.put(key, manifest), "marking a manifest")

    @asynccontextmanager
    async def lock(self, key: bytes) -> AsyncIterator[None]:
        """Hold a document's manifest from reading to saving."""
        shared = self._locks.setdefault(key, _Shared())
        shared.users += 1
        try:
            async with shared.lock:
                yield
        finally:
            shared.users -= 1
            if not shared.users:
                self._locks.pop(key, None)
