"""What a document is called: what was given, what the file says, or its first heading of level 1."""

from __future__ import annotations

import pytest

from chunking.parsers import parse_document


@pytest.mark.parametrize(
    ("text", "media_type", "given", "title"),
    [
        pytest.param("# Leave\n\ntext", "text/markdown", "Given", "Given", id="a-given-title-wins"),
        pytest.param("---\ntitle: Front\n---\n# Leave\n\ntext", "text/markdown", "", "Front", id="then-the-files-own"),
        pytest.param("intro\n\n## Part\n\n# C#\n\ntext", "text/markdown", "", "C#", id="then-the-first-level-1-heading"),
        pytest.param("<h1>请假 <em>规定</em></h1><p>正文</p>", "text/html", "", "请假 规定", id="in-html-too"),
        pytest.param("no heading", "text/plain", "", "", id="else-none"),
    ],
)
def test_a_document_is_called(text: str, media_type: str, given: str, title: str) -> None:
    assert parse_document(text, media_type, title=given).title == title
