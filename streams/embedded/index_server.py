"""The embedded index over HTTP: the part of Qdrant's REST API that docdelta uses, in front of local mode, on loopback only.

Other processes reach an index in a folder through it (`DOCDELTA_QDRANT__URL`), while this process goes on using the same one: both
share its one owner thread. It answers as a 1.19 server does: a batch ends at its first error with the operations before it done; a
missing id in a payload call by ids gives 404 after the other ids are done; 409, 400 and 422 where the server gives them; an alias
goes with its collection. It has no authentication: whoever may open a local port may read and write the index.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import BaseModel, ValidationError

from streams.errors import NotReachable, UsageError
from streams.index.client import models
from streams.index.qdrant import QdrantIndex
from streams.index.qdrant_errors import KNOWN, status_of, words_of
from streams.index.qdrant_local import LocalStore

LOOPBACK = "127.0.0.1"
VERSION = "1.19.0"
"""The server whose behaviour is kept."""
BODY_BYTES = 32 << 20
"""Largest request, as on the server."""

Model = TypeVar("Model", bound=BaseModel)
Answer = Callable[[web.Request], Awaitable[Any]]


class IndexServer:
    """A running server. `url` is what DOCDELTA_QDRANT__URL takes. Closing it leaves the index open."""

    def __init__(self, runner: web.AppRunner, port: int) -> None:
        self._runner = runner
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"

    async def close(self) -> None:
        """Stop listening. Requests in flight are cut off after a moment; what they wrote stays."""
        await self._runner.cleanup()


async def serve(index: QdrantIndex, port: int = 0, middlewares: Sequence[Middleware] = ()) -> IndexServer:
    """Serve an embedded index on a loopback port (0: a free one). UsageError: not embedded; NotReachable: the port is taken."""
    if not isinstance(index.store, LocalStore):
        raise UsageError("only an embedded index can be served; this one is a server already")
    application = web.Application(client_max_size=BODY_BYTES, middlewares=[*middlewares, _in_qdrants_words])
    application.add_routes(_Api(index.store).routes())
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, port)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise NotReachable(f"port {port} for the index is taken: {error.strerror}; choose another") from error
    return IndexServer(runner, int(runner.addresses[0][1]))


def refusal(status: int, words: str) -> web.Response:
    """Return an error as the server words it."""
    return web.json_response({"status": {"error": words}, "time": 0.0}, status=status)


@web.middleware
async def _in_qdrants_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into the server's status and JSON. A browser's page is refused: it could reach loopback from anywhere."""
    if "Origin" in request.headers or request.url.host not in (LOOPBACK, "localhost"):
        return refusal(403, "Forbidden: this index serves programs on this machine, not pages of a browser")
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return refusal(400, f"Payload error: JSON payload is larger than allowed (limit: {BODY_BYTES} bytes).")
    except web.HTTPException as error:
        return refusal(error.status, error.reason)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in fault["loc"])
        return refusal(400, f"Format error in JSON body: {place}: {fault['msg']}")
    except KNOWN as error:
        status, words = status_of(error) or 500, words_of(error)
        if isinstance(error, KeyError):
            words = f"Not found: No point with id {error.args[0]} found"
        elif status == 404:
            words = f"Not found: {words} (doesn't exist!)"
        return refusal(status, words)


class _Api:
    """Handlers over one LocalStore. Each returns what stands under `result`."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._indexes: dict[str, dict[str, str]] = {}
        """Payload indexes that were asked for: local mode has none, but a client looks whether they are there."""

    def routes(self) -> list[web.RouteDef]:
        """Return method and path of each call."""
        collection = "/collections/{name}"
        points = f"{collection}/points"
        table: list[tuple[str, str, Answer]] = [
            ("GET", "/cluster", self.cluster),
            ("GET", "/aliases", self.aliases),
            ("GET", "/collections", self.collections),
            ("POST", "/collections/aliases", self.change_aliases),
            ("GET", f"{collection}/aliases", self.aliases),
            ("GET", f"{collection}/exists", self.exists),
            ("GET", f"{collection}/optimizations", self.optimizations),
            ("PUT", f"{collection}/index", self.create_index),
            ("PUT", collection, self.create),
            ("GET", collection, self.describe),
            ("PATCH", collection, self.update),
            ("DELETE", collection, self.drop),
            ("POST", f"{points}/batch", self.batch),
            ("POST", f"{points}/scroll", self.scroll),
            ("POST", f"{points}/count", self.count),
            ("POST", f"{collection}/facet", self.facet),
            ("POST", f"{points}/query", self.query),
            ("POST", f"{points}/delete", self.write(models.DeleteOperation, "delete", models.PointIdsList, models.FilterSelector)),
            ("POST", f"{points}/payload", self.write(models.SetPayloadOperation, "set_payload", models.SetPayload)),
            ("PUT", f"{points}/payload", self.write(models.OverwritePayloadOperation, "overwrite_payload", models.SetPayload)),
            ("POST", f"{points}/payload/delete", self.write(models.DeletePayloadOperation, "delete_payload", models.DeletePayload)),
            (
                "POST",
                f"{points}/payload/clear",
                self.write(models.ClearPayloadOperation, "clear_payload", models.PointIdsList, models.FilterSelector),
            ),
            ("PUT", points, self.write(models.UpsertOperation, "upsert", models.PointsList, models.PointsBatch)),
            ("POST", points, self.retrieve),
            ("GET", f"{points}/{{id}}", self.point),
        ]
        plain = [web.get(path, _ready) for path in ("/healthz", "/livez", "/readyz")]
        return [web.get("/", _version), *plain, *(web.route(method, path, _wrapped(answer)) for method, path, answer in table)]

    async def cluster(self, request: web.Request) -> object:
        """One node."""
        return {"status": "disabled"}

    async def collections(self, request: web.Request) -> object:
        """Names of all collections."""
        return {"collections": [{"name": name} for name in await self._store.collections()]}

    async def aliases(self, request: web.Request) -> object:
        """All aliases, or those of one collection."""
        of = request.match_info.get("name")
        pairs = await self._store.aliases()
        return {
            "aliases": [{"alias_name": alias, "collection_name": target} for alias, target in pairs.items() if of in (None, target)]
        }

    async def change_aliases(self, request: web.Request) -> object:
        """Create, delete or rename aliases. Local mode does all or nothing; a server keeps what went before the error."""
        change = await _body(request, models.ChangeAliasesOperation)
        for action in change.actions:
            await self._store.run(lambda client, action=action: client.update_collection_aliases([action]))  # type: ignore[misc]
        return True

    async def exists(self, request: web.Request) -> object:
        """Whether there is such a collection."""
        name = request.match_info["name"]
        return {"exists": await self._store.run(lambda client: client.collection_exists(name))}

    async def create(self, request: web.Request) -> object:
        """Create a collection: 409 when it exists, 400 when an alias has its name."""
        asked = await _body(request, models.CreateCollection)
        await self._store.create_as(
            request.match_info["name"],
            vectors_config=asked.vectors,
            sparse_vectors_config=asked.sparse_vectors,
            metadata=asked.metadata,
        )
        return True

    async def describe(self, request: web.Request) -> object:
        """Configuration and state of a collection."""
        name = request.match_info["name"]
        info = await self._store.run(lambda client: client.get_collection(name))
        concrete = (await self._store.aliases()).get(name, name)
        schema = {
            field: {"data_type": data_type, "points": info.points_count or 0}
            for field, data_type in self._indexes.get(concrete, {}).items()
        }
        return {**info.model_dump(mode="json"), "payload_schema": schema}

    async def update(self, request: web.Request) -> object:
        """Change a collection's metadata."""
        name = request.match_info["name"]
        asked = await _body(request, models.UpdateCollection)
        return await self._store.run(lambda client: client.update_collection(name, metadata=asked.metadata))

    async def drop(self, request: web.Request) -> object:
        """Remove a collection and the aliases that point at it; False where there was none."""
        name = request.match_info["name"]
        existed = name in await self._store.collections()
        if existed:
            await self._store.drop(name)
        self._indexes.pop(name, None)
        return existed

    async def create_index(self, request: web.Request) -> object:
        """Note a payload index. One of another type replaces it."""
        name = request.match_info["name"]
        asked = await _body(request, models.CreateFieldIndex)
        await self._store.count(name)  # 404 where there is no such collection
        schema = asked.field_schema
        kind = schema if isinstance(schema, models.PayloadSchemaType) else getattr(schema, "type", None)
        concrete = (await self._store.aliases()).get(name, name)
        self._indexes.setdefault(concrete, {})[asked.field_name] = getattr(kind, "value", "keyword")
        return _update_result(request)

    async def optimizations(self, request: web.Request) -> object:
        """Nothing ever runs."""
        await self._store.count(request.match_info["name"])
        idle = {"queued_optimizations": 0, "queued_segments": 0, "queued_points": 0, "idle_segments": 1}
        return {"summary": idle, "running": []}

    async def batch(self, request: web.Request) -> object:
        """Carry out operations in order; the first that fails ends it."""
        asked = await _body(request, models.UpdateOperations)
        await self._store.batch(request.match_info["name"], asked.operations)
        return [_update_result(request) for _ in asked.operations]

    def write(self, operation: type[BaseModel], key: str, *bodies: type[BaseModel]) -> Answer:
        """Return the handler of a single write: a batch of one operation, whose body is one of `bodies`."""

        async def answer(request: web.Request) -> object:
            fields = await _json(request)
            body = next((body for body in bodies if set(fields) & set(body.model_fields)), bodies[0])
            one: Any = operation.model_validate({key: body.model_validate(fields)})
            await self._store.batch(request.match_info["name"], [one])
            return _update_result(request)

        return answer

    async def retrieve(self, request: web.Request) -> object:
        """Points by ids."""
        asked = await _body(request, models.PointRequest)
        payload = True if asked.with_payload is None else asked.with_payload
        vectors = asked.with_vector or False
        records = await self._store.run(
            lambda client: client.retrieve(
                request.match_info["name"],
                asked.ids,
                with_payload=payload,
                with_vectors=vectors,
            )
        )
        return [record.model_dump(mode="json", exclude_none=True) for record in records]

    async def point(self, request: web.Request) -> object:
        """One point, 404 where it is not."""
        name, identity = request.match_info["name"], request.match_info["id"]
        wanted: int | str = int(identity) if identity.isdecimal() else identity
        records = await self._store.run(lambda client: client.retrieve(name, [wanted], with_vectors=True))
        if not records:
            raise KeyError(identity)
        return records[0].model_dump(mode="json", exclude_none=True)

    async def scroll(self, request: web.Request) -> object:
        """A page of points."""
        asked = await _body(request, models.ScrollRequest)
        name, limit = request.match_info["name"], _positive(asked.limit)
        plain = asked.order_by is None and not asked.with_vector and asked.with_payload in (None, True)
        if plain:
            records, after = await self._store.scroll(name, asked.filter, asked.offset, limit)
        else:
            records, after = await self._store.run(
                lambda client: client.scroll(
                    name,
                    scroll_filter=asked.filter,
                    limit=limit,
                    order_by=asked.order_by,
                    offset=asked.offset,
                    with_payload=True if asked.with_payload is None else asked.with_payload,
                    with_vectors=asked.with_vector or False,
                )
            )
        return {"points": [record.model_dump(mode="json", exclude_none=True) for record in records], "next_page_offset": after}

    async def count(self, request: web.Request) -> object:
        """Number of points, always exact."""
        asked = await _body(request, models.CountRequest)
        return {"count": await self._store.count(request.match_info["name"], asked.filter)}

    async def facet(self, request: web.Request) -> object:
        """Values of an integer field and how many points have each, always exact."""
        asked = await _body(request, models.FacetRequest)
        where = asked.filter or models.Filter()
        found = await self._store.facet(request.match_info["name"], asked.key, where, _positive(asked.limit))
        return {"hits": [{"value": value, "count": count} for value, count in found.items()]}

    async def query(self, request: web.Request) -> object:
        """Nearest points, fusion and the other queries of local mode."""
        asked = await _body(request, models.QueryRequest)
        name, limit = request.match_info["name"], _positive(asked.limit)
        found = await self._store.run(
            lambda client: client.query_points(
                name,
                query=asked.query,
                using=asked.using,
                prefetch=asked.prefetch,
                query_filter=asked.filter,
                limit=limit,
                offset=asked.offset,
                score_threshold=asked.score_threshold,
                with_payload=asked.with_payload if asked.with_payload is not None else False,
                with_vectors=asked.with_vector or False,
            )
        )
        return {"points": [point.model_dump(mode="json", exclude_none=True) for point in found.points]}


def _wrapped(answer: Answer) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        began = time.perf_counter()
        result = await answer(request)
        return web.json_response({"result": result, "status": "ok", "time": time.perf_counter() - began})

    return handle


async def _ready(request: web.Request) -> web.Response:
    return web.Response(text="all shards are ready")


async def _version(request: web.Request) -> web.Response:
    return web.json_response({"title": "qdrant - vector search engine", "version": VERSION, "commit": "embedded"})


async def _json(request: web.Request) -> dict[str, Any]:
    body = await request.read()
    try:
        fields = json.loads(body or b"{}")
    except ValueError as error:
        raise web.HTTPBadRequest(reason="Format error in JSON body") from error
    if not isinstance(fields, dict):
        raise web.HTTPBadRequest(reason="Format error in JSON body: not an object")
    return fields


async def _body(request: web.Request, model: type[Model]) -> Model:
    return model.model_validate(await _json(request))


def _positive(limit: int | None) -> int:
    if limit is not None and limit < 1:
        raise web.HTTPUnprocessableEntity(reason="Validation error in JSON body: limit: must be 1 or larger")
    return 10 if limit is None else limit


def _update_result(request: web.Request) -> dict[str, Any]:
    waited = request.query.get("wait", "false") == "true"
    return {"operation_id": 0, "status": "completed" if waited else "acknowledged"}
