"""evaluate(): a golden file against one collection. Reads the index and embeds the questions; nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from chunking.tokens import counter
from streams.errors import UsageError
from streams.evaluation.golden import Golden, GoldenQuestion
from streams.evaluation.judge import Count, judge
from streams.evaluation.results import Answer, Evaluation, Sizes
from streams.index.reading import neighbours as read_neighbours
from streams.ports import Embedder, Hit, Vector, VectorIndex
from streams.reading.search import MAX_HITS, MAX_NEIGHBOURS, Mode, Question, Served, best_hits, mode_of, searchable

DEFAULT_KS = (1, 3, 5, 10)
TOKENIZER = "cl100k_base"
"""What evidence and chunks are counted by: the same for all policies, else their figures could not be compared."""
_AT_ONCE = 8


async def evaluate(
    index: VectorIndex,
    collection: str,
    embedder: Embedder,
    golden: Golden,
    ks: Sequence[int] = DEFAULT_KS,
    mode: Mode | None = None,
    *,
    name: str = "",
    neighbours: int = 0,
    sizes: bool = True,
    count: Count | None = None,
) -> Evaluation:
    """Return how a collection (or the one behind an alias) answers the golden questions.

    embedder: of the collection's own embedding spec. mode: None is hybrid where there are sparse vectors. neighbours: passages
    around each hit that a reader gets as well. sizes: whether to read every chunk for the distribution of sizes. The evidence of a
    hit is its parent's text where the policy makes parents, else its own, with its neighbours.

    Raises UsageError (ks, neighbours or embedder do not fit), NotPrepared (no such collection, no sparse vectors), Unavailable.
    """
    ks = _checked(ks, neighbours)
    target = await searchable(index, await index.alias_target(collection) or collection)  # an alias may be switched meanwhile
    if embedder.model != target.embedding.model or embedder.dimensions != target.embedding.dimensions:
        raise UsageError(f"collection {collection} was made with {target.embedding.model}, the embedder is {embedder.model}")
    tokens: Count = count or (await asyncio.to_thread(counter, TOKENIZER)).count
    how = mode_of(target, mode)
    vectors = await embedder.embed([target.embedding.query_prefix + each.question for each in golden.questions])
    turns = asyncio.Semaphore(_AT_ONCE)

    async def answer(question: GoldenQuestion, vector: Vector) -> Answer:
        asked = Question(question.tenant, question.question, ks[-1], groups=question.groups, languages=question.languages, mode=how)
        async with turns:
            hits = await best_hits(index, target, asked, vector)
            evidence = [await _evidence(index, target, hit, neighbours) for hit in hits]
        return judge(question, list(zip(hits, evidence, strict=True)), tokens)

    answers = await asyncio.gather(*(answer(*each) for each in zip(golden.questions, vectors, strict=True)))
    found_sizes = await chunk_sizes(index, target.collection, tokens) if sizes else None
    return Evaluation(name or f"{target.spec.batch} {how}", target.collection, how, ks, tuple(answers), found_sizes)


async def chunk_sizes(index: VectorIndex, collection: str, count: Count) -> Sizes:
    """Return the tokens of every body chunk. Reads all points; counting runs off the event loop."""
    tokens: list[int] = []
    async for page in index.scan(collection):
        texts = [own_text(point.payload) for point in page if point.payload.get("role") == "body"]
        tokens += await asyncio.to_thread(lambda texts=texts: [count(text) for text in texts])  # type: ignore[misc]
    return Sizes(tuple(sorted(tokens)))


def own_text(payload: Mapping[str, Any]) -> str:
    """Return a chunk's text with what is repeated before it (a table's header), as a reader sees it."""
    return str(payload.get("repeat", "")) + str(payload.get("text", ""))


async def _evidence(index: VectorIndex, target: Served, hit: Hit, neighbours: int) -> str:
    if hit.payload.get("parent_text"):
        return str(hit.payload["parent_text"])
    text = own_text(hit.payload)
    if not neighbours:
        return text
    around = await read_neighbours(index, target.collection, hit.payload, neighbours)
    before, after = ([str(point.payload["text"]) for point in side] for side in (around.before, around.after))
    return "\n".join([*before, text, *after])


def _checked(ks: Sequence[int], neighbours: int) -> tuple[int, ...]:
    if not ks or min(ks) < 1 or max(ks) > MAX_HITS:
        raise UsageError(f"-k {','.join(map(str, ks)) or 'is empty'}: give numbers from 1 to {MAX_HITS}, such as 1,3,5,10")
    if not 0 <= neighbours <= MAX_NEIGHBOURS:
        raise UsageError(f"--neighbours {neighbours} is out of range; 0 to {MAX_NEIGHBOURS}")
    return tuple(sorted(set(ks)))
