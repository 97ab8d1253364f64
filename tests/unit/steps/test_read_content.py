"""Content is taken only as it was meant: encoding, size and digest are checked, and the refusal says what to do."""

from __future__ import annotations

import base64
import hashlib

import pytest

from schemas.document_change import Content
from streams.errors import PoisonRecord
from streams.steps.read_content import read_content


def test_text_stays_text_and_base64_becomes_bytes() -> None:
    assert read_content(Content(text="中文"), 100) == "中文"
    assert read_content(Content(base64=base64.b64encode(b"\x00\x01").decode()), 100) == b"\x00\x01"


def test_a_reference_is_read_only_when_its_digest_fits() -> None:
    data = "页面".encode()
    content = Content(ref="file:///page", sha256=hashlib.sha256(data).hexdigest())
    assert read_content(content, 100, data) == data
    with pytest.raises(PoisonRecord, match=r"content\.ref has sha256"):
        read_content(content, 100, data + b" ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(Content(base64="not base64!"), "not base64", id="wrong-base64"),
        pytest.param(Content(base64="YQ"), "padding", id="no-padding"),
        pytest.param(Content(text="a", sha256="0" * 64), "was announced", id="wrong-sha256"),
        pytest.param(Content(text="中" * 40), "has 120 bytes", id="size-is-counted-in-bytes"),
        pytest.param(Content(base64="A" * 400), "above parser.max_document_bytes", id="size-is-checked-before-decoding"),
    ],
)
def test_what_can_not_be_meant_is_refused(content: Content, words: str) -> None:
    with pytest.raises(PoisonRecord, match=words):
        read_content(content, 100)
