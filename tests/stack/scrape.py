"""Reads `/metrics` as Prometheus does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support.patience import PATIENCE


@dataclass(frozen=True)
class Scrape:
    """What `/metrics` said once: every sample with its labels."""

    samples: tuple[tuple[str, dict[str, str], float], ...]

    def all(self, name: str, **labels: str) -> list[float]:
        """Return the values of a series' samples that have these labels."""
        return [value for found, has, value in self.samples if found == name and labels.items() <= has.items()]

    def sum(self, name: str, **labels: str) -> float:
        """Return their sum; 0 where there are none."""
        return sum(self.all(name, **labels))

    @property
    def names(self) -> set[str]:
        """Names of all samples."""
        return {name for name, _, _ in self.samples}


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def get(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a page; (0, "") while nobody listens."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()
    except aiohttp.ClientConnectorError:
        return 0, ""


async def scrape(port: int) -> Scrape:
    """Return what a worker's `/metrics` says; nothing while it does not listen."""
    status, text = await get(port, "/metrics")
    assert status in (0, 200), text
    families = text_string_to_metric_families(text)
    return Scrape(tuple((sample.name, dict(sample.labels), sample.value) for family in families for sample in family.samples))


async def scrape_when(port: int, enough: Callable[[Scrape], bool], seconds: float = PATIENCE) -> Scrape:
    """Return the first scrape that is enough. AssertionError with what there is after `seconds`."""
    deadline = time.monotonic() + seconds
    while not enough(found := await scrape(port)):
        assert time.monotonic() < deadline, "\n".join(f"{name}{labels} {value}" for name, labels, value in found.samples if value)
        await asyncio.sleep(0.2)
    return found
