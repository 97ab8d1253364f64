"""What the real agents, runners and commands stand on: the log, the table, the index and the model, each call an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from chunking.document import Document
from streams.agents.order import Order
from streams.agents.parse_document import Parse
from streams.faustio.scope import headers_for
from streams.ports import NO_HEADERS, IndexPlan, InRecord, StoredPoint, Vector
from tests.crash.simulation import documents
from tests.crash.simulation.world import World

if TYPE_CHECKING:
    from tests.crash.simulation.member import Member


class Caller(Protocol):
    """Whose operations they are."""

    world: World

    async def perform(self, kind: str, what: str, *steps: Callable[[], Any]) -> Any:
        """Hand an operation to the world and wait for its answer."""
        ...


def order_of(member: Member) -> Order:
    """Return the parser's way to say the newest event of a document again."""
    world = member.world

    async def recall(late: InRecord, offset: int) -> InRecord | None:
        def read() -> InRecord | None:
            there = (late.topic, late.partition, offset) not in world.gone
            return world.logs[late.topic, late.partition][offset] if there else None

        found: InRecord | None = await member.perform("read", f"read {late.topic}@{offset} again", read)
        return found

    async def say(late: InRecord, value: bytes, headers: Mapping[str, bytes]) -> None:
        await member.perform(
            "publish",
            f"publish {late.topic} again, behind @{late.offset}: {short(value)}",
            lambda: world.append(late.topic, late.key, value, headers),
        )

    return Order(recall, say)


class Log:
    """streams.ports.Log"""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def publish(self, topic: str, key: bytes, value: bytes, more: Mapping[str, bytes] = NO_HEADERS) -> None:
        headers = {**dict(headers_for(key)), **more}
        await self._member.perform(
            "publish", f"publish {topic} {short(value)}", lambda: self._member.world.append(topic, key, value, headers)
        )

    def trace_id(self, key: bytes) -> str:
        return ""

    def lane(self, key: bytes) -> str:
        return "live"


class Table:
    """streams.ports.Table"""

    def __init__(self, member: Member) -> None:
        self._member = member

    def get(self, key: bytes) -> bytes | None:
        return self._member.table.get(key)

    async def put(self, key: bytes, value: bytes) -> None:
        assert value, "table values must be truthy"
        member = self._member
        if member.eager_store:
            member.table[key] = value
        changelog = member.world.changelogs[member.group, member.partition]
        await member.perform("put", f"changelog {key.decode()} {short(value)}", lambda: changelog.append((key, value)))
        member.table[key] = value


class IndexPort:
    """What agents and commands use of streams.ports.VectorIndex."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._world = caller.world

    async def retrieve(self, collection: str, chunk_ids: Sequence[str], with_vectors: bool = False) -> dict[str, StoredPoint]:
        def read() -> dict[str, StoredPoint]:
            points = self._world.collection(collection).points
            found = {chunk_id: points[chunk_id] for chunk_id in chunk_ids if chunk_id in points}
            return {
                chunk_id: StoredPoint(chunk_id, dict(payload), vector if with_vectors else None)
                for chunk_id, (payload, vector) in found.items()
            }

        result: dict[str, StoredPoint] = await self._caller.perform("read", f"retrieve {len(chunk_ids)} points", read)
        return result

    async def document_points(self, collection: str, tenant_id: str, document_id: str) -> list[StoredPoint]:
        result: list[StoredPoint] = await self._caller.perform(
            "read",
            f"list {tenant_id}/{document_id}",
            lambda: self._world.collection(collection).of_document(tenant_id, document_id),
        )
        return result

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        counts = f"+{len(plan.upserts)} ~{len(plan.payloads)} ={len(plan.stamps)} -{len(plan.deletes)}"
        what = f"apply {plan.tenant_id}/{plan.document_id} r{plan.revision} {counts}"
        await self._caller.perform("apply", what, *self._world.to_write(collection).steps(plan))

    async def drop_collection(self, collection: str) -> None:
        await self._caller.perform("alias", f"drop {collection}", lambda: self._world.drop(collection))

    async def alias_target(self, alias: str) -> str | None:
        result: str | None = await self._caller.perform("read", f"read alias {alias}", lambda: self._world.aliases.get(alias))
        return result

    async def set_alias(self, alias: str, collection: str) -> None:
        await self._caller.perform("alias", f"point {alias} at {collection}", lambda: self._world.point(alias, collection))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody here uses index.{name}")


class Embedder:
    """streams.ports.Embedder"""

    model, dimensions, max_tokens = "simulated", documents.DIMENSIONS, None

    def __init__(self, member: Member) -> None:
        self._member = member

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        assert all(text.strip() for text in texts), "blank text for the embedder"
        asked, member = list(texts), self._member
        vectors: list[Vector] = await member.perform("embed", f"embed {asked}", lambda: documents.embed(asked, member.world.mended))
        return vectors


def parse_of(member: Member) -> Parse:
    """Return the parser's way to parse."""

    async def parse(
        data: bytes | str, media_type: str, *, title: str, language: str, kind: str, labels: Sequence[str], place: str
    ) -> Document:
        assert isinstance(data, str)
        return documents.parse(data, title, member.world.mended)

    return parse


async def fetch(reference: str, limit: int) -> bytes:
    raise AssertionError("no references here")


def short(value: bytes) -> str:
    return value[:160].decode("utf-8", "replace")
