"""normalize(): what goes, what stays."""

from __future__ import annotations

import pytest

from chunking.normalize import normalize


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        pytest.param("\ufeff# T", "# T", id="a-byte-order-mark-goes"),
        pytest.param("a\r\nb\rc\r\r\nd", "a\nb\nc\n\nd", id="line-ends-become-lf"),
        pytest.param("第\u200b十\u2060条", "第十条", id="zero-width-characters-that-hide-markers-go"),
        pytest.param("soft\u00adhyphen", "softhyphen", id="soft-hyphens-go"),
        pytest.param("cafe\u0301", "café", id="marks-are-composed"),
        pytest.param("，（①Ａ", "，（①Ａ", id="full-width-forms-stay"),
        pytest.param("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧", id="joiners-within-an-emoji-stay"),
        pytest.param("क्\u200dष می\u200cخواهم", "क्\u200dष می\u200cخواهم", id="joiners-within-a-script-stay"),
        pytest.param("第\u200d十\u200c\u200c条", "第十条", id="joiners-between-chinese-characters-go"),
        pytest.param(
            "three\x0cfour\x85five\u2028six", "three\x0cfour\x85five\u2028six", id="form-feed-nel-and-u2028-are-no-line-ends"
        ),
        pytest.param("ok \ud83d end\x00", "ok \ufffd end\ufffd", id="what-no-store-takes-is-replaced"),
    ],
)
def test_normalize_cleans_what_readers_do_not_see(text: str, clean: str) -> None:
    assert normalize(text) == clean


def test_a_run_of_marks_is_not_put_in_order_in_quadratic_time() -> None:
    run = "e" + "\u0301\u0323" * 100_000
    assert normalize("é" + run) == "é" + run
    assert normalize("e\u0301" + " x " + run) == "é x " + run
