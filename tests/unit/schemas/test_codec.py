"""The codec takes what it knows and says in words what it does not take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.codec import RECORDS, UndecodableRecord, decode, encode, schema_name
from schemas.document_change import Content, DocumentChange
from schemas.export import json_schema
from schemas.record import document_key, split_document_key

SAMPLES = Path(__file__).parents[2] / "contracts" / "samples"
HEAD = '{"schema":"docdelta.document_change/1","tenant_id":"a","document_id":"d","revision":1,"op":"upsert",'


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_stored_sample_of_every_version_decodes_for_ever(name: str) -> None:
    record = RECORDS[name]
    for version in range(1, record.record_version + 1):
        value = (SAMPLES / f"{name}.v{version}.json").read_bytes().strip()
        decoded = decode(value, record)
        assert decode(encode(decoded), record) == decoded


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_the_checked_in_json_schema_is_the_models(name: str) -> None:
    record = RECORDS[name]
    path = Path("schemas/json") / f"{name}.v{record.record_version}.json"
    assert (Path(__file__).parents[3] / path).read_text(encoding="utf-8") == json_schema(record)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_the_samples_meet_their_json_schema(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    record = RECORDS[name]
    sample = json.loads((SAMPLES / f"{name}.v{record.record_version}.json").read_bytes())
    jsonschema.validate(sample, json.loads(json_schema(record)))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(b"\xff", "not UTF-8 at byte 0", id="not-utf8"),
        pytest.param(b"{", "not JSON", id="KA-01-not-json"),
        pytest.param(b"[]", "not a JSON object but list", id="KA-01-wrong-shape"),
        pytest.param(b'{"id":null}', "'schema' is missing", id="KA-01-no-schema"),
        pytest.param(b'{"schema":"docdelta.document_change/2"}', "is unknown here", id="version-of-the-future"),
        pytest.param(b'{"schema":"docdelta.receipt/1"}', "does not belong here", id="other-record"),
        pytest.param((HEAD + '"content":{"text":"x"},"colour":1}').encode(), "colour: unknown field", id="unknown-field-is-named"),
        pytest.param((HEAD + '"content":{"text":"ok \\ud83d end"}}').encode(), "surrogate", id="UN-04-lone-surrogate"),
        pytest.param((HEAD + '"content":{"text":"a\\u0000"}}').encode(), "content.text: text holds a NUL", id="nul"),
        pytest.param((HEAD + '"content":{}}').encode(), "exactly one of text, base64, ref", id="no-content"),
        pytest.param((HEAD + '"content":{"ref":"file:///x"}}').encode(), "needs content.sha256", id="reference-without-digest"),
        pytest.param(HEAD.replace(":1,", ":1.5,").encode() + b'"content":{"text":"x"}}', "revision", id="revision-not-whole"),
        pytest.param(HEAD.replace(":1,", f":{2**53},").encode() + b'"content":{"text":"x"}}', "revision", id="revision-too-large"),
        pytest.param(HEAD.replace('"a"', '"a/b"').encode() + b'"content":{"text":"x"}}', "tenant_id", id="slash-in-tenant"),
        pytest.param(b"[" * 200_000, "nested too deeply", id="deep-nesting"),
        pytest.param((HEAD[:-1] + "}").encode(), "an upsert needs content", id="upsert-without-content"),
    ],
)
def test_what_is_no_record_is_refused_in_words(value: bytes, words: str) -> None:
    with pytest.raises(UndecodableRecord, match=words.replace(".", r"\.")):
        decode(value, DocumentChange)


def test_a_refusal_quotes_no_content() -> None:
    with pytest.raises(UndecodableRecord) as refusal:
        decode((HEAD + '"content":{"text":5,"salary":"secret 900"}}').encode(), DocumentChange)
    assert "secret" not in str(refusal.value)


def test_a_key_can_be_taken_apart_even_when_the_id_holds_slashes() -> None:
    assert split_document_key(document_key("acme", "docs/a/b.md")) == ("acme", "docs/a/b.md")
    with pytest.raises(ValueError, match="tenant/document"):
        split_document_key(b"nothing")


def test_schema_name_stands_first_on_the_wire() -> None:
    change = DocumentChange(tenant_id="a", document_id="d", revision=1, op="upsert", content=Content(text="x"))
    assert encode(change).startswith(b'{"schema":"' + schema_name(DocumentChange).encode())
