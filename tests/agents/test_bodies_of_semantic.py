"""A policy that cuts by the model's sentence vectors: the chunker asks the embedder, waits out its outages, and repeats itself."""

from __future__ import annotations

from chunking.policy import ChunkPolicy, Embedding, Rule
from streams.errors import Unavailable
from tests.support.pipeline import DIMENSIONS, Pipeline

TEXT = (
    "The depot opens at eight. The depot closes at six. The depot has two gates. "
    "Violins are tuned in fifths. Violins have four strings. Violins need rosin. "
    "夜班每两小时巡查一次。夜班从十点开始。夜班有两名值班员。"
)


def a_policy(vectors: str) -> ChunkPolicy:
    return ChunkPolicy(
        name="semantic",
        version=1,
        rules=(Rule(use="semantic", options={"vectors": vectors, "amount": 0.7, "buffer": 0}),),
        embedding=Embedding(model="hashing-v1", dimensions=DIMENSIONS),
    )


async def test_sentences_go_to_the_model_in_one_call_and_cut_the_same_way_again() -> None:
    pipeline = Pipeline(policy=a_policy("model"))
    pipeline.send("d", 1, TEXT)
    await pipeline.drain()
    sentences = [text for text in pipeline.embedder.texts if text == "The depot opens at eight."]
    assert sentences, "single sentences were asked for"
    calls = pipeline.embedder.calls
    assert calls == 2, "one call for the sentences, one for the chunks"
    first = [payload["text"] for payload in await _payloads(pipeline)]
    assert len(first) > 1
    pipeline.send("d", 2, TEXT + "夜班结束后交接。")
    await pipeline.drain()
    second = [payload["text"] for payload in await _payloads(pipeline)]
    assert second[0] == first[0], "the same sentences are cut the same way"


async def test_an_outage_of_the_model_while_chunking_is_waited_out() -> None:
    pipeline = Pipeline(policy=a_policy("model"))
    pipeline.embedder.answers.append(Unavailable("model is busy"))
    pipeline.send("d", 1, TEXT)
    await pipeline.drain()
    assert len(await _payloads(pipeline)) > 1


def test_only_a_policy_with_model_vectors_asks_the_model() -> None:
    assert a_policy("model").asks_model
    assert not a_policy("words").asks_model


async def _payloads(pipeline: Pipeline) -> list[dict[str, object]]:
    return [dict(point.payload) for point in await pipeline.index.document_points(pipeline.batch, "A", "d")]
