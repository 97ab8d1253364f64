"""Words of sparse vectors: Chinese is found by its words, codes and numbers survive, nothing is fetched."""

from __future__ import annotations

import pytest

from chunking.policy import Sparse
from streams.embedders.sparse import open_sparse, sparse_of, words_of
from streams.errors import NotPrepared
from streams.ports import SparseEmbedder, SparseVector


def bm25(**fields: float) -> SparseEmbedder:
    made = open_sparse(Sparse.model_validate(fields).spec)
    assert made is not None
    return made


def shared(left: SparseVector, right: SparseVector) -> int:
    return len(set(left.indices) & set(right.indices))


@pytest.mark.parametrize(
    ("document", "question"),
    [
        pytest.param("连续飞行超过八小时的国际航班，可以订超级经济舱", "坐多久的航班可以订经济舱？", id="chinese-words"),
        pytest.param("热线 6999 全天有人", "６９９９ 是什么电话", id="full-width-digits"),
        pytest.param("Error E-4031 means a loose probe", "what is e-4031", id="codes-in-any-case"),
        pytest.param("长" * 30 + "句子没有标点" * 20 + "粉碎颗粒", "颗粒", id="a-word-in-a-long-run-without-marks"),
    ],
)
async def test_a_question_shares_words_with_its_document(document: str, question: str) -> None:
    embedder = bm25()
    (stored,) = await embedder.documents([document])
    assert shared(stored, await embedder.query(question)) >= 1


async def test_unrelated_texts_share_nothing_and_marks_are_no_words() -> None:
    embedder = bm25()
    (stored,) = await embedder.documents(["报废的硬盘要粉碎"])
    assert shared(stored, await embedder.query("frozen food")) == 0
    assert len(await embedder.query("。。！ … ---")) == 0
    assert len((await embedder.documents(["——"]))[0]) == 0


def test_long_words_come_with_their_parts() -> None:
    assert words_of("国际航班") == ["国际", "航班", "国际航班"]
    assert words_of("Ｔ3 Logger") == words_of("t3 LOGGER")


async def test_a_word_weighs_by_the_formula_of_bm25() -> None:
    embedder = bm25(k1=1.2, b=0.75, average_words=4)
    (once,) = await embedder.documents(["apple pear plum fig"])
    assert once.values == pytest.approx([1.0] * 4)  # one of four words, average length: (1.2 + 1) / (1 + 1.2)
    (twice,) = await embedder.documents(["apple apple"])
    assert twice.values == pytest.approx([2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 2 / 4))])
    assert (await embedder.query("apple apple pear")).values == (1.0, 1.0)


def test_a_spec_is_read_back_and_a_foreign_one_refused() -> None:
    sparse = Sparse(k1=2.0, b=0.5, average_words=80)
    assert sparse_of(sparse.spec) == sparse
    assert open_sparse("") is None
    for foreign in ("{}", "[]", '["bm25", "jieba/9", 1.2, 0.75, 110]'):
        with pytest.raises(NotPrepared, match="can't be read"):
            open_sparse(foreign)
