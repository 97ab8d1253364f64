"""Standing: what is paused, open and held now, as [controls] and [held] tell it. For commands, status and the gate of a rollout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.codec import decode
from schemas.control import Decision, Figures
from schemas.held_change import HeldChange, HeldReason
from streams.controls.state import Controls, fold
from streams.kafka.read import read_topic
from streams.ports import InRecord
from streams.settings import Settings

EXAMPLES = 3
PLACES = {"ends", "bulk_ends", "topic_id", "bulk_topic_id"}
"""Of a decision, what only workers read."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One event that is held, and where its record stands in [held]."""

    change: HeldChange
    place: tuple[int, int]
    """Partition and offset in [held]: another one means that it was held anew."""


@dataclass(frozen=True, slots=True)
class TenantHeld:
    """A tenant whose breaker is open, or of whom something is held by one."""

    tenant: str
    open_since: datetime | None
    """None: it is decided, and what is held waits for its release (the same command again)."""
    why: str
    figures: Figures | None
    decision: Decision | None
    """The newest."""
    held: tuple[HeldChange, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as `docdelta breaker list --json` prints it."""
        return {
            "tenant_id": self.tenant,
            "state": "open" if self.open_since else "decided",
            "since": self.open_since.isoformat() if self.open_since else None,
            "why": self.why,
            "counted": self.figures.counted if self.figures else None,
            "documents": self.figures.documents if self.figures else None,
            "share": round(self.figures.share, 4) if self.figures else None,
            "decision": self.decision.model_dump(mode="json", exclude=PLACES) if self.decision else None,
            "held": len(self.held),
            "examples": [held.document_id for held in self.held[:EXAMPLES]],
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """All of it. `held`: by the event's key."""

    controls: Controls
    held: dict[bytes, Holding]

    def held_of(self, tenant: str | None, reason: HeldReason | None = None) -> list[Holding]:
        """Return what is held, of one tenant or of all, oldest first."""
        chosen = (
            each
            for each in self.held.values()
            if (tenant is None or each.change.tenant_id == tenant) and (reason is None or each.change.reason == reason)
        )
        return sorted(chosen, key=lambda each: (each.change.since, each.change.document_id))

    def breakers(self) -> list[TenantHeld]:
        """Return the tenants with an open breaker or events held by one, by name."""
        opened = {each.tenant: each for each in self.controls.open_breakers()}
        by_tenant: dict[str, list[HeldChange]] = {name: [] for name in opened}
        for holding in self.held_of(None, "breaker"):
            by_tenant.setdefault(holding.change.tenant_id, []).append(holding.change)
        found = []
        for tenant, held in sorted(by_tenant.items()):
            breaker, decision = opened.get(tenant), self.controls.newest_decision(tenant)
            verb = "approved" if decision is not None and decision.verdict == "approve" else "rejected"
            done = f"{verb} by {decision.by}; run docdelta breaker {decision.verdict} {tenant} again" if decision else ""
            found.append(
                TenantHeld(
                    tenant,
                    breaker.since if breaker else None,
                    breaker.first.reason if breaker else done,
                    breaker.first.figures if breaker else None,
                    decision,
                    tuple(held),
                )
            )
        return found


def held_by_key(records: Iterable[InRecord]) -> dict[bytes, Holding]:
    """Return what [held] amounts to, read in offset order."""
    held: dict[bytes, Holding] = {}
    for record in records:
        key = record.key or b""
        if record.value is None:
            held.pop(key, None)
        else:
            held[key] = Holding(decode(record.value, HeldChange), (record.partition, record.offset))
    return held


def read_held(settings: Settings) -> dict[bytes, Holding]:
    """Return what is held now. Raises NotPrepared when the topic is missing."""
    return held_by_key(read_topic(settings.kafka, settings.topics.held))


def read_controls(settings: Settings) -> Controls:
    """Return what is in force now. Raises NotPrepared when the topic is missing."""
    return fold(read_topic(settings.kafka, settings.topics.controls))


def read_standing(settings: Settings) -> Standing:
    """Return all of it."""
    return Standing(read_controls(settings), read_held(settings))


def pauses_json(controls: Controls) -> list[dict[str, Any]]:
    """Return the pauses as `docdelta status --json` prints them."""
    return [
        {
            "tenant_id": pause.tenant_id,
            "stage": pause.stage or None,
            "since": pause.at.isoformat(),
            "reason": pause.reason,
            "by": pause.by,
        }
        for _, pause in sorted(controls.pauses.items())
    ]


def pauses_in_words(controls: Controls) -> Sequence[str]:
    """Return a line a pause."""
    lines = []
    for _, pause in sorted(controls.pauses.items()):
        name = f"tenant {pause.tenant_id}" if pause.tenant_id is not None else f"stage {pause.stage}"
        flag = f"--tenant {pause.tenant_id}" if pause.tenant_id is not None else f"--stage {pause.stage}"
        said = f": {pause.reason}" if pause.reason else ""
        lines.append(f"{name} is paused since {pause.at:%Y-%m-%d %H:%M:%S} by {pause.by}{said}; docdelta resume {flag}")
    return lines
