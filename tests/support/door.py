"""A site behind the door: eight documents, their deletes, what is held of them and what is there."""

from __future__ import annotations

from streams.steps.limits import Limits
from tests.support.desk import desk_over
from tests.support.pipeline import Pipeline, sections

LIMITS = Limits(share=0.5, minimum=4)
NAMES = [f"d{number}" for number in range(8)]


async def a_site(limits: Limits = LIMITS, tenant: str = "A") -> Pipeline:
    """Return a pipeline with eight documents at revision 1."""
    pipeline = Pipeline(breaker=limits)
    for name in NAMES:
        pipeline.send(name, 1, sections(name), tenant, event_id=f"{name}@1")
    await pipeline.drain()
    return pipeline


async def there(pipeline: Pipeline, tenant: str = "A") -> list[str]:
    """Return the documents that have points."""
    return [name for name in NAMES if await pipeline.ids(name, tenant)]


def delete_all(pipeline: Pipeline, revision: int = 2, tenant: str = "A") -> None:
    for name in NAMES:
        pipeline.send(name, revision, None, tenant, event_id=f"{name}@{revision}")


def held(pipeline: Pipeline) -> set[str]:
    return {each.change.document_id for each in desk_over(pipeline).held().values()}
