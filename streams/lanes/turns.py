"""Whose turn it is: those who wait, one tenant after the other, each tenant's in the order they came."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


@dataclass(slots=True)
class Turns(Generic[Waiter]):
    """A queue that goes round among tenants. Adding and taking cost the same however many wait."""

    _queues: dict[str, deque[Waiter]] = field(default_factory=dict)
    """By tenant, in order of turns: the first one is next. Never an empty queue."""

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, tenant: str, waiter: Waiter) -> None:
        """Let a waiter wait. A tenant that had none waiting comes last."""
        self._queues.setdefault(tenant, deque()).append(waiter)

    def take(self) -> Waiter:
        """Return the next one, and put its tenant last. LookupError when nobody waits."""
        if not self._queues:
            raise LookupError("nobody waits")
        tenant = next(iter(self._queues))
        queue = self._queues.pop(tenant)
        waiter = queue.popleft()
        if queue:
            self._queues[tenant] = queue
        return waiter

    def remove(self, tenant: str, waiter: Waiter) -> None:
        """Let a waiter go, if it waits."""
        queue = self._queues.get(tenant)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._queues[tenant]
