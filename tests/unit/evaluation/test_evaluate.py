"""evaluate() over a small index whose answers are known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streams.errors import NotPrepared, UsageError
from streams.evaluation import Golden, evaluate
from streams.evaluation.golden import Expectation, GoldenQuestion
from streams.evaluation.report import as_json, comparisons, rows
from streams.evaluation.results import Evaluation
from tests.unit.evaluation.conftest import Shelf, Topics, words


def golden(*questions: tuple[str, Sequence[Expectation]], **fields: Any) -> Golden:
    return Golden(
        tuple(
            GoldenQuestion(**{"question": text, "tenant": "acme", "expected": places, "line": line, **fields})
            for line, (text, places) in enumerate(questions, start=1)
        )
    )


def place(document: str, fragment: str = "", **fields: Any) -> Expectation:
    return Expectation(document=document, fragment=fragment, **fields)


async def run(shelf: Shelf, asked: Golden, **options: Any) -> Evaluation:
    return await evaluate(shelf.index, shelf.collection, Topics(), asked, **{"ks": (1, 3), "count": words, **options})


async def test_ranks_recall_and_precision_are_those_worked_by_hand(dense_shelf: Shelf) -> None:
    asked = golden(
        ("leave leave leave", [place("leave", "ten days")]),
        ("leave leave", [place("leave", "form E-4031")]),
        ("travel", [place("travel", "by train"), place("travel", "needs approval")]),
        ("limits", [place("limits", "not said anywhere")]),
    )
    found = await run(dense_shelf, asked)
    ranks = [answer.rank for answer in found.answers]
    assert [rank if index != 2 else None for index, rank in enumerate(ranks)] == [ranks[0], 3, None, None]
    assert ranks[0] in (1, 2)  # two chunks about leave alone are equally near
    assert ranks[2] == 1
    assert found.recall(3) == pytest.approx((1 + 1 + 1 + 0) / 4)
    assert found.recall(1) == pytest.approx(((ranks[0] == 1) + 0 + 0.5 + 0) / 4)
    assert found.mrr() == pytest.approx((1 / ranks[0] + 1 / 3 + 1 + 0) / 4)
    travel = found.answers[2]
    assert travel.gains[:2] == (1, 1)
    assert [hit.given_tokens for hit in travel.hits[:2]] in ([4, 5], [5, 4])
    assert sum(hit.wanted_tokens for hit in travel.hits) == 4
    assert [answer.question.question for answer in found.worst(9)][:2] == ["limits", "leave leave"]


async def test_the_question_is_embedded_with_the_collections_prefix_and_asked_of_its_tenant(dense_shelf: Shelf) -> None:
    embedder = Topics()
    asked = golden(("leave", [place("leave", "rival")]), tenant="rival")
    found = await evaluate(dense_shelf.index, dense_shelf.collection, embedder, asked, (5,), count=words)
    assert embedder.given == ["ask: leave"]
    assert [hit.document_id for hit in found.answers[0].hits] == ["leave"]
    assert found.recall(5) == 1


async def test_readers_without_the_right_group_do_not_find(dense_shelf: Shelf) -> None:
    await dense_shelf.put("story", "story story", acl=["board"])
    for groups, recall in ((None, 1), (("board",), 1), (("staff",), 0), ((), 0)):
        found = await run(dense_shelf, golden(("story", [place("story", "story story")]), groups=groups))
        assert found.recall(3) == recall


async def test_a_revision_and_a_clause_are_part_of_what_is_expected(dense_shelf: Shelf) -> None:
    for wanted, recall in (
        (place("limits", "six hundred", revision=7), 1),
        (place("limits", "six hundred", revision=6), 0),
        (place("limits", clause="1"), 1),
        (place("limits", clause="2"), 0),
        (place("limits", heading_path=("Limits",)), 1),
        (place("limits"), 1),
        (place("limits", "six\n  hundred"), 1),
    ):
        assert (await run(dense_shelf, golden(("limits", [wanted])))).recall(3) == recall


async def test_a_citation_is_right_when_heading_path_and_clause_are(dense_shelf: Shelf) -> None:
    asked = golden(
        ("limits", [place("limits", "six hundred", heading_path=("Limits",), clause="1")]),
        ("limits are", [place("limits", "six hundred", heading_path=("Limits",), clause="2")]),
        ("limits of", [place("limits", "six hundred", heading_path=("Other", "Limits"))]),
        ("limits?", [place("limits", "six hundred")]),
        ("limits!", [place("limits", "nowhere", clause="1")]),
    )
    citations = (await run(dense_shelf, asked)).citations
    assert (citations.right, citations.of) == (1, 3)
    assert (citations.heading_paths, citations.clauses) == ((2, 3), (1, 2))


async def test_a_citation_names_the_part_that_the_words_stand_in(dense_shelf: Shelf) -> None:
    text = "limits first of six hundred and then of seven"
    fields = {"clauses": ["1", "1（二）", "2"], "heading_path": ["Limits"]}
    parts = [{"at": 0, "clause": "1"}, {"at": text.index("six"), "clause": "1（二）"}]
    parts.append({"at": text.index("then"), "clause": "2", "heading_path": ["Limits", "More"]})
    await dense_shelf.put("parted", text, parts=parts, **fields)
    wanted = (
        (place("parted", "limits first", clause="1"), True),
        (place("parted", "six hundred", clause="1"), True),  # an item of it names it
        (place("parted", "six hundred", clause="2"), False),
        (place("parted", "of seven", clause="2", heading_path=("Limits", "More")), True),
        (place("parted", "of seven", clause="2", heading_path=("Limits",)), False),
        (place("parted", clause="2", heading_path=("Limits", "More")), True),  # no words: whichever part fits
    )
    for each, right in wanted:
        answer = (await run(dense_shelf, golden(("limits limits", [each])), ks=(5,))).answers[0]
        assert answer.citation is not None
        assert answer.citation.right is right, each
        if right and each.fragment:
            found = next(hit for hit in answer.hits if hit.met)
            assert found.clause.startswith(each.clause)


async def test_hybrid_finds_the_code_that_meaning_does_not(hybrid_shelf: Shelf) -> None:
    asked = golden(("leave by E-4031", [place("leave", "form E-4031")]))
    dense = await run(hybrid_shelf, asked, mode="dense")
    hybrid = await run(hybrid_shelf, asked)
    assert (dense.mode, hybrid.mode) == ("dense", "hybrid")
    assert (dense.answers[0].rank, hybrid.answers[0].rank) == (3, 1)
    (change,) = comparisons([dense, hybrid])
    assert [(moved.before, moved.after) for moved in change.risen] == [(3, 1)]
    assert change.fallen == ()
    (back,) = comparisons([hybrid, dense])
    assert [(moved.before, moved.after) for moved in back.fallen] == [(1, 3)]


async def test_evidence_is_the_parent_or_the_hit_with_its_neighbours(dense_shelf: Shelf) -> None:
    asked = golden(
        ("limits", [place("leave", "eighty percent")]), ("travel", [place("travel", "by train travel\ntravel by plane")])
    )
    assert (await run(dense_shelf, asked)).answers[1].rank is None
    assert (await run(dense_shelf, asked, neighbours=1)).answers[1].rank == 1
    await dense_shelf.put("story", "story one", "story two", parent_id="p", parent_text="story one and the rest of the chapter")
    told = await run(dense_shelf, golden(("story", [place("story", "rest of the chapter")])), ks=(2,))
    assert told.answers[0].rank == 1
    assert told.duplicates(2) == pytest.approx(0.5)


async def test_sizes_are_those_of_all_body_chunks(dense_shelf: Shelf) -> None:
    await dense_shelf.put("story", "one two three four five six seven eight", role="context")
    asked = golden(("leave", [place("leave", "ten days")]))
    found = await run(dense_shelf, asked)
    assert found.sizes is not None
    assert found.sizes.tokens == (4, 4, 4, 4, 5, 5, 7)
    assert found.sizes.as_json()["p50"] == 4
    assert (await run(dense_shelf, asked, sizes=False)).sizes is None


async def test_what_does_not_fit_is_refused(dense_shelf: Shelf) -> None:
    asked = golden(("leave", [place("leave", "ten days")]))
    with pytest.raises(NotPrepared, match="no sparse vectors"):
        await run(dense_shelf, asked, mode="hybrid")
    with pytest.raises(NotPrepared, match="does not exist"):
        await evaluate(dense_shelf.index, "nowhere", Topics(), asked)
    with pytest.raises(UsageError, match="made with topics"):
        await evaluate(dense_shelf.index, dense_shelf.collection, Topics(model="other"), asked)
    for ks in ((), (0, 3), (5000,)):
        with pytest.raises(UsageError, match="-k"):
            await run(dense_shelf, asked, ks=ks)
    with pytest.raises(ValueError, match="outside"):
        (await run(dense_shelf, asked)).recall(4)


async def test_the_report_holds_every_figure_of_every_evaluation(hybrid_shelf: Shelf) -> None:
    asked = golden(("leave", [place("leave", "ten days", clause="1")]), ("travel", [place("travel", "by train")]))
    both = [await run(hybrid_shelf, asked, mode=mode) for mode in ("dense", "hybrid")]
    table = rows(both)
    assert all(len(row.values) == 2 for row in table)
    assert {"Recall@1", "Recall@3", "MRR", "nDCG@3", "Citations right", "Token precision@3", "Duplicate evidence@3", "Chunks"} <= {
        row.figure for row in table
    }
    told = as_json(asked, both)
    assert told["k"] == [1, 3]
    for made, each in zip(both, told["evaluations"], strict=True):
        assert each["recall"] == {"1": made.recall(1), "3": made.recall(3)}
        assert [answer["rank"] for answer in each["answers"]] == [answer.rank for answer in made.answers]
