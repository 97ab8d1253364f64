"""The book of receipts, as `docdelta dev` and the demo print them: one end an event, the one that lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from schemas.receipt import Outcome, Receipt
from streams.embedded.stack import ReceiptBook
from tests.support.patience import PATIENCE


def a_receipt(event: str, outcome: Outcome) -> Receipt:
    return Receipt(tenant_id="a", document_id="d", revision=1, batch="blue", stage="indexer", outcome=outcome, event_id=event)


async def told(*receipts: Receipt) -> list[tuple[str, str]]:
    """What a book passes on of these receipts: event and outcome."""
    passed, read = [], asyncio.Event()

    async def all_of_them() -> AsyncIterator[Receipt]:
        for receipt in receipts:
            yield receipt
        read.set()

    stack: Any = SimpleNamespace(receipts=all_of_them)
    async with ReceiptBook(stack, lambda receipt: passed.append((receipt.event_id, receipt.outcome))):
        await asyncio.wait_for(read.wait(), PATIENCE)
    return passed


async def test_a_repeat_is_not_told() -> None:
    assert await told(a_receipt("e", "indexed"), a_receipt("e", "unchanged")) == [("e", "indexed")]


async def test_what_was_held_is_told_again_when_it_is_released_and_once() -> None:
    held, through = a_receipt("e", "held"), a_receipt("e", "indexed")
    assert await told(held, held, through, held, through) == [("e", "held"), ("e", "indexed")]
