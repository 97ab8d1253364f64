"""Targets: what each input is given to, and what must hold of the outcome: a document (text, record, chunks) or a named error.

A target takes an `Inputs` and returns the outcome's name for the tally and the number of characters or bytes it was given. Whatever
it raises is a finding.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from itertools import pairwise

import regex

from chunking.charset import decode as decode_charset
from chunking.chunker import Provenance, TooManyChunks, chunk
from chunking.document import Document, DocumentKey
from chunking.normalize import normalize
from chunking.outline import outline
from chunking.parsers import UnreadableMarkup, parse_document
from chunking.passage import Role
from chunking.policy import ChunkPolicy
from chunking.strategies import STRATEGIES
from chunking.tokens import counter
from schemas.codec import RECORDS, UndecodableRecord, decode, encode
from schemas.document_change import Content
from schemas.parsed_document import ParsedDocument
from streams.errors import PoisonRecord
from streams.steps.read_content import read_content
from tests.fuzz.inputs import ROOT, Inputs
from tests.support.texts import is_text

Outcome = tuple[str, int]
Target = Callable[[Inputs], Outcome]
_WORTHLESS = regex.compile(r"[\s\p{Cf}\p{Cc}*_=~—–-]+")
"""What a strategy may leave out: blanks, what can't be seen, and the marks that rules are drawn with."""
SAMPLES = ROOT / "tests/contracts/samples"


def _check_words(error: Exception) -> None:
    """One line of ordinary length, with nothing of the content in it: all of our own words are ASCII, save the ellipsis."""
    words = str(error)
    assert 0 < len(words) < 600, "the error says nothing, or too much"
    assert "\n" not in words, "the error has more than one line"
    assert words.replace("…", "").isascii(), "the error quotes content"


def normaliser(inputs: Inputs) -> Outcome:
    """Clean text, and clean for good: doing it twice changes nothing, any store takes it."""
    _, text = inputs.text()
    clean = normalize(text)
    assert "\r" not in clean
    assert "\x00" not in clean
    clean.encode("utf-8")
    assert normalize(clean) == clean, "normalising again changes something"
    return "text", len(text)


def charset(inputs: Inputs) -> Outcome:
    """Text and the name of its charset, or a ValueError that says what to do."""
    _, label, data = inputs.data()
    try:
        text, name = decode_charset(data, label)
    except UnicodeError:
        raise
    except ValueError as error:
        _check_words(error)
        return "refused", len(data)
    normalize(text).encode("utf-8")
    return name, len(data)


@functools.cache
def _sample_records() -> tuple[tuple[str, str], ...]:
    return tuple(
        (path.name.partition(".")[0], line)
        for path in sorted(SAMPLES.glob("*.json"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    )


def codec(inputs: Inputs) -> Outcome:
    """A record whose bytes give the same record again, or UndecodableRecord in one line that quotes no content."""
    dice = inputs.dice
    name, line = dice.choice(_sample_records())
    data = line.encode()
    if dice.random() < 0.5:
        data = _with_other_values(inputs, json.loads(line))
    for _ in range(dice.choice((0, 0, 1, 1, 2, 4))):
        data = inputs._damaged(data)
    expected = RECORDS[name if dice.random() < 0.9 else dice.choice(sorted(RECORDS))]
    try:
        record = decode(data, expected)
    except UndecodableRecord as error:
        _check_words(error)
        return "UndecodableRecord", len(data)
    assert decode(encode(record), expected) == record, "encoding changes the record"
    return expected.record_name, len(data)


def _with_other_values(inputs: Inputs, fields: dict[str, object]) -> bytes:
    dice = inputs.dice
    values = (None, True, -1, 0, 2**53, 2**53 - 1, 1e400, -0.0, "", "x" * 3000, "\ud83d", "\x00", [], {}, [[]], {"a": {}}, [1, "a"])
    for _ in range(dice.randint(1, 3)):
        key = dice.choice([*fields, "schema", "unknown", ""])
        fields[key] = dice.choice(values)
    if dice.random() < 0.1:
        return json.dumps(fields).encode()[:-1] + b',"deep":' + b"[" * dice.choice((10, 5_000, 200_000)) + b"}"
    return json.dumps(fields, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")


def content(inputs: Inputs) -> Outcome:
    """Bytes or text within the limit, or PoisonRecord."""
    dice = inputs.dice
    _, text = inputs.text()
    digest = dice.choice((None, None, "0" * 64))
    text = normalize(text)  # a record with NUL or half a surrogate pair is refused before this
    made = {"base64" if dice.random() < 0.5 else "text": text}
    try:
        body = read_content(Content(sha256=digest, **made), max_bytes=2_000)
    except PoisonRecord as error:
        _check_words(error)
        return "PoisonRecord", len(text)
    assert len(body) <= 2_000
    return type(body).__name__, len(text)


def parse_text(inputs: Inputs) -> Outcome:
    """Text gives a document, whole, clean and the same again, or UnreadableMarkup where it is no text."""
    media_type, text = inputs.text()
    try:
        document = parse_document(text, media_type)
    except UnreadableMarkup as error:
        _check_words(error)
        assert not is_text(text), "a text is refused"
        return "UnreadableMarkup", len(text)
    _check_document(document, lambda: parse_document(text, media_type), inputs)
    return media_type, len(text)


def parse_bytes(inputs: Inputs) -> Outcome:
    """Bytes give a document or UnreadableMarkup."""
    media_type, label, data = inputs.data()
    if label is not None:
        media_type += f"; charset={label}"
    try:
        document = parse_document(data, media_type)
    except UnreadableMarkup as error:
        _check_words(error)
        return "UnreadableMarkup", len(data)
    _check_document(document, lambda: parse_document(data, media_type), inputs)
    return document.media_type, len(data)


def _check_document(document: Document, again: Callable[[], Document], inputs: Inputs) -> None:
    assert all(document.text_of(block).strip() for block in document.blocks), "a block is blank"
    assert normalize(document.text) == document.text, "text is not normalised"
    document.text.encode("utf-8")
    if inputs.dice.random() < 0.1:
        assert again() == document, "parsing again gives something else"
        once = outline(document)
        assert outline(once) == once, "the outline pass is not done once"


@functools.cache
def _policy(strategy: str, max_tokens: int, tokenizer: str) -> ChunkPolicy:
    return ChunkPolicy.model_validate(
        {
            "name": "fuzz",
            "version": 1,
            "rules": [{"use": strategy}],
            "limits": {"max_tokens": max_tokens, "tokenizer": tokenizer, "max_chunks": 5_000},
            "embed": {"title": True, "heading_path": True},
        }
    )


def strategies(inputs: Inputs) -> Outcome:
    """Chunks that hold all visible text in exactly one BODY chunk, none above the limit, no id twice; or TooManyChunks."""
    dice = inputs.dice
    media_type, text = inputs.text()
    title = dice.choice(("", "A title", "长" * 100))
    try:
        document = parse_document(text, media_type, title=title)
    except UnreadableMarkup:
        return "UnreadableMarkup", len(text)
    name = dice.choice(sorted(STRATEGIES))
    policy = _policy(name, dice.choice((16, 40, 120, 400)), dice.choice(("characters", "characters", "cl100k_base")))
    count = counter(policy.limits.tokenizer)
    provenance = Provenance(DocumentKey("t", "d"), 1)
    try:
        chunks = chunk(document, provenance, policy, count)
    except TooManyChunks:
        return "TooManyChunks", len(text)
    bodies = [each.span for each in chunks if each.role is Role.BODY]
    assert all(first.end <= second.start for first, second in pairwise(bodies)), f"{name}: bodies overlap or are out of order"
    covered = "".join(span.of(document.text) for span in bodies)
    assert _WORTHLESS.sub("", covered) == _WORTHLESS.sub("", document.text), f"{name}: visible text is lost or repeated"
    assert len({each.chunk_id for each in chunks}) == len(chunks), f"{name}: an id comes twice"
    for each in chunks:
        if each.role is not Role.PARENT:
            assert each.embed_text.strip(), f"{name}: a chunk is blank"
            assert each.tokens <= policy.limits.max_tokens, f"{name}: {each.tokens} tokens above {policy.limits.max_tokens}"
    if dice.random() < 0.1:
        assert chunk(document, provenance, policy, count) == chunks, f"{name}: chunking again gives something else"
    return name, len(text)


TARGETS: dict[str, tuple[Target, int]] = {
    "normaliser": (normaliser, 55_000),
    "codec": (codec, 55_000),
    "charset": (charset, 25_000),
    "content": (content, 15_000),
    "parse-text": (parse_text, 20_000),
    "parse-bytes": (parse_bytes, 20_000),
    "strategies": (strategies, 10_000),
}
"""Each target with its share of 200,000 inputs."""
assert ParsedDocument.record_name in RECORDS
