"""Where sentences end, and where they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunking.sentences import (
    comma_ends,
    line_ends,
    paragraph_ends,
    semicolon_ends,
    sentence_ends,
    space_ends,
)


def sentences(text: str) -> list[str]:
    ends = sentence_ends(text, 0, len(text))
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("今天好。明天呢？好！", ["今天好。", "明天呢？", "好！"], id="chinese-marks"),
        pytest.param("他说：“走吧。”我们就走了。", ["他说：“走吧。”", "我们就走了。"], id="closing-quote-stays"),
        pytest.param('他说：“走吧！"我们就走了。', ['他说：“走吧！"', "我们就走了。"], id="a-straight-quote-closes-a-curly-one"),
        pytest.param("真的？！走。", ["真的？！", "走。"], id="marks-in-a-row"),
        pytest.param("等等……再说吧。好。", ["等等……再说吧。", "好。"], id="ellipsis-in-mid-sentence"),
        pytest.param("Dr. Smith left. He paid $3.50.", ["Dr. Smith left. ", "He paid $3.50."], id="titles-and-decimals"),
        pytest.param("See Fig. 3 and No. 5. Then go.", ["See Fig. 3 and No. 5. ", "Then go."], id="numbered-short-forms"),
        pytest.param("The answer is no. Next one.", ["The answer is no. ", "Next one."], id="no-is-a-word-too"),
        pytest.param("J. R. Doe came. Good.", ["J. R. Doe came. ", "Good."], id="initials"),
        pytest.param("e.g. tea, i.e. leaves. End.", ["e.g. tea, i.e. leaves. ", "End."], id="latin-short-forms"),
        pytest.param("Wait... what? Yes.", ["Wait... what? ", "Yes."], id="dots-in-mid-sentence"),
        pytest.param("He said “Go.” Then left.", ["He said “Go.” ", "Then left."], id="curly-quote-after-dot"),
        pytest.param("Version 3.5.1 is out. Try it!", ["Version 3.5.1 is out. ", "Try it!"], id="versions"),
        pytest.param("one line\nnext line", ["one line\nnext line"], id="hard-wrapped-prose-goes-on"),
        pytest.param("第一行\n第二行", ["第一行\n", "第二行"], id="line-ends"),
        pytest.param("x = 1.\n    return x", ["x = 1.\n", "    return x"], id="indentation-stays-with-its-line"),
        pytest.param("1. item one", ["1. item one"], id="list-number"),
        pytest.param("see example.com/a?b=1 now. Ok.", ["see example.com/a?b=1 now. ", "Ok."], id="addresses"),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize("ends", [sentence_ends, semicolon_ends, comma_ends, space_ends, line_ends, paragraph_ends])
@given(text=st.text(alphabet="ab1 .!?。！；;，,：:\n\"“”'…　|-", max_size=60))
def test_ends_tile_the_text(ends: object, text: str) -> None:
    assert callable(ends)
    found = ends(text, 0, len(text))
    assert found == sorted(set(found))
    assert found[-1] == len(text)
    assert all(position > 0 for position in found[:-1])


def test_a_number_is_not_parted_at_its_comma() -> None:
    text = "1,000,000, that is"
    assert comma_ends(text, 0, len(text)) == [len("1,000,000, "), len(text)]
