"""What every embedder promises, for each kind; and what the check in front of a model makes of wrong answers."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from chunking.policy import Embedding
from streams.embedders import EMBEDDERS, open_embedder
from streams.embedders.base import CheckedEmbedder, _most_tokens
from streams.embedders.fastembed import FastembedModel
from streams.embedders.hashing import MODEL_NAME, HashingModel, hashed
from streams.errors import NotPrepared, PoisonRecord, Unavailable
from streams.ports import Embedder
from streams.settings import EmbedderSettings, Settings
from streams.worker import Worker
from tests.support.patience import PATIENCE

TEXTS = [
    "Employees request annual leave in the portal.",
    "员工在系统中申请年假，由直属经理审批。",
    "Backups are taken every night at two.",
    "a",
    "数据库每晚两点备份。",
]


@pytest.fixture(scope="module", params=sorted(EMBEDDERS))
def embedder(request) -> Embedder:
    embedding = {"fastembed": Embedding(), "hashing": Embedding(model=MODEL_NAME, dimensions=256)}[request.param]
    return open_embedder(EmbedderSettings(kind=request.param), embedding)


async def test_a_vector_a_text_finite_of_length_one_and_of_the_promised_size(embedder):
    vectors = await embedder.embed(TEXTS)
    assert [vector.shape for vector in vectors] == [(embedder.dimensions,)] * len(TEXTS)
    assert all(vector.dtype == np.float32 and np.isfinite(vector).all() for vector in vectors)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


async def test_a_text_has_the_same_vector_alone_and_in_any_company(embedder):
    """Forty texts of mixed length: more than one batch, and not in the order in which they are run."""
    many = [text * (1 + number % 5) for number, text in enumerate(TEXTS * 8)]
    together = await embedder.embed(many)
    alone = [(await embedder.embed([text]))[0] for text in many[:10]]
    assert np.abs(np.array(together[:10]) - np.array(alone)).max() < 1e-5
    backwards = await embedder.embed(many[::-1])
    assert np.abs(np.array(together) - np.array(backwards[::-1])).max() < 1e-5


async def test_a_question_finds_its_passage(embedder):
    passages = np.array(await embedder.embed(TEXTS))
    questions = np.array(await embedder.embed(["When are backups taken?", "怎样申请年假？"]))
    assert (questions @ passages.T).argmax(axis=1).tolist() == [2, 1]


async def test_no_texts_no_vectors(embedder):
    assert await embedder.embed([]) == []


async def test_blank_texts_keep_their_slot_and_have_no_vector(embedder):
    slots = await embedder.slots(["alpha", "   ", "beta", "", "\u3000\n", "gamma"])
    assert [slot is None for slot in slots] == [False, True, False, True, True, False]
    with pytest.raises(PoisonRecord, match="blank"):
        await embedder.embed(["alpha", " "])


async def test_many_callers_at_once_each_get_their_own(embedder):
    answers = await asyncio.gather(*(embedder.embed([text]) for text in TEXTS * 3))
    expected = await embedder.embed(TEXTS)
    for number, (vector,) in enumerate(answers):
        assert np.abs(vector - expected[number % len(TEXTS)]).max() < 1e-5


def test_tokens_grow_with_the_text_and_are_never_cut(embedder):
    counts = [embedder.count_tokens("knowledge base 知识库 " * times) for times in (1, 10, 1000)]
    assert counts[0] < counts[1] < counts[2]
    assert counts[2] > 3000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=60))
@example(text="\ufdfa" * 40)
@example(text="㍿㌀ǆİ 漢字かな \u0344\u1e9b\u0323" * 5)
def test_the_bound_that_saves_counting_is_never_below_the_count(embedder, text):
    assert embedder.count_tokens(text) <= _most_tokens(text)


async def test_one_that_is_closed_leaves_no_thread_behind_that_the_process_would_wait_for(embedder):
    before = set(threading.enumerate())
    fastembed = isinstance(embedder._model, FastembedModel)
    kind = "fastembed" if fastembed else "hashing"
    own = open_embedder(EmbedderSettings(kind=kind), Embedding(model=embedder.model, dimensions=embedder.dimensions))
    await own.embed(TEXTS)
    theirs = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("embeds")]
    assert bool(theirs) == fastembed
    call = asyncio.ensure_future(own.embed(TEXTS * 20))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    own.close()
    for thread in theirs:
        await asyncio.to_thread(thread.join, PATIENCE)
        assert not thread.is_alive()


async def test_a_worker_that_stops_closes_its_models(tmp_path):
    model = Told()
    worker = Worker(Settings(worker={"state_dir": tmp_path}))
    worker._embedders["told"] = CheckedEmbedder(model)
    await worker.stop()
    assert model.closed


NORMALISERS = [[], ["Lowercase"], *([form] for form in ("NFC", "NFD", "NFKC", "NFKD")), ["Lowercase", "NFC"], ["NFKD", "Lowercase"]]


@pytest.mark.parametrize("names", NORMALISERS, ids="-".join)
@settings(deadline=None)
@given(text=st.text(max_size=60))
@example(text="\U0001d400\uff21\uff0c" * 20)
@example(text="\u023a\u023e" * 20)
@example(text="\ufdfa\uac01\u0390" * 20)
def test_nor_for_a_tokenizer_that_has_a_token_for_each_byte(names, text):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    each_byte = Tokenizer(models.BPE({character: number for number, character in enumerate(alphabet)}, []))
    each_byte.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    each_byte.normalizer = normalizers.Sequence([getattr(normalizers, name)() for name in names])
    assert len(each_byte.encode(text).ids) <= _most_tokens(text)


class Told:
    """A model that answers what it is told, and remembers what it was asked. `vectors` of a text: [length, count of "a", 1]."""

    model, dimensions = "told", 3

    def __init__(self, answer=None, max_tokens=None) -> None:
        self.answer, self.max_tokens, self.asked, self.running, self.most, self.closed = answer, max_tokens, [], 0, 0, False

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def vectors(self, texts):
        self.asked.append(list(texts))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        right = [[len(text), text.count("a"), 1.0] for text in texts]
        return self.answer(right) if self.answer else right

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(lambda right: right[:-1], "another number of vectors", id="one-too-few"),
        pytest.param(lambda right: right[:1], "another number of vectors", id="one-for-all"),
        pytest.param(lambda right: [*right, right[0]], "another number of vectors", id="one-too-many"),
        pytest.param(lambda right: [*right[:-1], [1.0, 2.0]], "another length", id="short-vector"),
        pytest.param(lambda right: [*right[:-1], [[1.0, 2.0, 3.0]]], "another length", id="nested-vector"),
        pytest.param(lambda right: [*right[:-1], [1.0, float("nan"), 0.0]], "not a finite number", id="nan"),
        pytest.param(lambda right: [*right[:-1], [1.0, 1e300, 0.0]], "not a finite number", id="over-float32"),
        pytest.param(lambda right: [*right[:-1], [0.0, 0.0, 0.0]], "zeros", id="zeros"),
        pytest.param(lambda right: [*right[:-1], None], "another length|not a finite|something else", id="none"),
        pytest.param(lambda right: [*right[:-1], ["x", "y", "z"]], "something else than a vector", id="words"),
    ],
)
async def test_a_wrong_answer_is_refused_as_a_whole_and_may_be_asked_again(answer, words):
    model = Told(answer)
    embedder = CheckedEmbedder(model)
    with pytest.raises(Unavailable, match=words):
        await embedder.embed(["a", "bb", "ccc"])
    model.answer = None
    assert [vector.tolist() for vector in await embedder.embed(["a", "bb", "ccc"])] == [[1, 1, 1], [2, 0, 1], [3, 0, 1]]


@given(st.lists(st.sampled_from(["", " ", "\t\n", "a", "bb", "aaa"]), max_size=12))
def test_every_slot_holds_its_own_text_whatever_is_blank_around_it(texts):
    model = Told()
    slots = asyncio.run(CheckedEmbedder(model).slots(texts))
    assert [None if slot is None else slot.tolist() for slot in slots] == [
        [len(text), text.count("a"), 1] if text.strip() else None for text in texts
    ]
    assert all(text.strip() for asked in model.asked for text in asked)
    assert len(model.asked) <= 1


async def test_nothing_is_asked_when_one_text_is_over_the_limit():
    model = Told(max_tokens=50)
    with pytest.raises(PoisonRecord, match=r"longer than the model reads.*tokens=51 limit=50 position=1 begins='b") as refusal:
        await CheckedEmbedder(model).embed(["a" * 50, "b" * 51])
    assert refusal.value.facts["tokens"] == 51
    assert model.asked == []
    assert len(await CheckedEmbedder(model).embed(["a" * 50])) == 1


async def test_half_a_surrogate_pair_is_refused_by_place(embedder):
    with pytest.raises(PoisonRecord, match="half a surrogate pair") as refusal:
        await embedder.embed(["fine", "bro\ud83dken"])
    assert (refusal.value.facts["position"], refusal.value.facts["at"]) == (1, 3)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_calls_run_at_once_than_allowed(concurrency):
    model = Told()
    embedder = CheckedEmbedder(model, concurrency)
    await asyncio.gather(*(embedder.embed(["a"]) for _ in range(20)))
    assert len(model.asked) == 20
    assert model.most <= concurrency


@given(st.text(max_size=200), st.integers(1, 600))
def test_hashed_vectors_are_unit_vectors_for_any_text_and_size(text, dimensions):
    vector = hashed(text, dimensions)
    assert vector.shape == (dimensions,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_hashed_vectors_are_a_promise():
    """The same on every machine and in every version: a change is a new model name."""
    assert hashed("knowledge base 知识库", 8).tolist() == pytest.approx(
        [0.0, -0.3436, 0.2945, 0.3436, -0.2945, 0.0, -0.6872, 0.3436], abs=1e-4
    )


def test_likeness_of_hashed_texts_follows_shared_words():
    a, near, far = (hashed(text, 512) for text in ("申请年假的流程", "年假申请流程说明", "数据库每晚备份"))
    assert a @ near > 0.5 > abs(a @ far) + 0.3


def test_a_policy_of_another_model_is_not_served_with_hashed_vectors():
    with pytest.raises(NotPrepared, match=r"asks for model 'use-multilingual-v3'.*makes only 'hashing-v1'"):
        open_embedder(EmbedderSettings(kind="hashing"), Embedding())


def test_another_size_than_the_policy_says_names_both():
    with pytest.raises(NotPrepared, match="512 dimensions, the policy says 384"):
        open_embedder(EmbedderSettings(), Embedding(dimensions=384))


def test_a_limit_of_the_policy_above_the_models_names_both():
    with pytest.raises(NotPrepared, match="reads 2,048 tokens, the policy says 4,096"):
        open_embedder(EmbedderSettings(), Embedding(max_tokens=4096))


def test_a_hashing_model_takes_any_size():
    assert HashingModel(7).dimensions == 7
