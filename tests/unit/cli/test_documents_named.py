"""Claims about names of documents beside `docdelta dev`: what may have been meant otherwise is said."""

from __future__ import annotations

from streams.cli.documents_named import meant_otherwise


def test_an_id_with_a_slash_may_have_been_meant_as_a_tenants_document() -> None:
    hint = meant_otherwise("docdelta why", "acme/a page.md", ("demo", "acme/a page.md"))
    assert "demo" in hint
    assert hint.endswith("docdelta why 'a page.md' --tenant acme")


def test_a_name_that_was_taken_apart_or_has_no_slash_was_meant_so() -> None:
    assert meant_otherwise("docdelta why", "demo/page.md", ("demo", "page.md")) == ""
    assert meant_otherwise("docdelta why", "page.md", ("demo", "page.md")) == ""
    assert meant_otherwise("docdelta why", "guide/", ("demo", "guide/")) == ""
