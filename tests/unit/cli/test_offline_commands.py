"""Claims about parse, chunk and diff: shapes that programs rely on, and no broker, model or network anywhere near."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import PAGE, Run

CHUNK_FIELDS = [
    "chunk_id",
    "ordinal",
    "kind",
    "heading_path",
    "clause",
    "clauses",
    "text",
    "embed_text",
    "tokens",
    "span",
    "page",
    "parent",
    "role",
    "overlap",
]


def test_chunk_json_is_one_object_a_line_with_the_documented_fields(run: Run) -> None:
    chunks = run("chunk", "page.md", "--policy", "policy.yaml", "--json").lines
    assert len(chunks) >= 2
    assert all(list(chunk) == CHUNK_FIELDS for chunk in chunks)
    assert [chunk["ordinal"] for chunk in chunks] == list(range(len(chunks)))
    assert all(set(chunk["span"]) == {"start", "end"} for chunk in chunks)


def test_spans_point_into_the_text_that_parse_prints(run: Run) -> None:
    text = run("parse", "page.md", "--json").json["text"]
    for chunk in run("chunk", "page.md", "--policy", "policy.yaml", "--json").lines:
        assert text[chunk["span"]["start"] : chunk["span"]["end"]] == chunk["text"]


def test_parse_json_tells_parser_metadata_and_blocks(run: Run) -> None:
    parsed = run(
        "parse", "page.md", "--title", "T", "--language", "zh", "--kind", "faq", "--label", "b", "--label", "a", "--json"
    ).json
    assert {name: parsed[name] for name in ("title", "language", "kind", "labels", "media_type")} == {
        "title": "T",
        "language": "zh",
        "kind": "faq",
        "labels": ["a", "b"],
        "media_type": "text/markdown",
    }
    assert [block["kind"] for block in parsed["blocks"]][:2] == ["heading", "paragraph"]
    assert set(parsed["blocks"][0]) == {
        "kind",
        "span",
        "text",
        "level",
        "label",
        "clause",
        "group",
        "cells",
        "page",
        "attributes",
    }


def test_tenant_and_id_enter_the_chunk_ids_and_nothing_else(run: Run) -> None:
    def ids(*options: str) -> list[str]:
        return [chunk["chunk_id"] for chunk in run("chunk", "page.md", "-p", "policy.yaml", "--json", *options).lines]

    plain = ids()
    assert plain == ids("--id", "page.md", "--tenant", "preview")
    assert set(plain).isdisjoint(ids("--tenant", "acme"))
    assert set(plain).isdisjoint(ids("--id", "other"))


def test_diff_of_equal_files_costs_nothing(run: Run) -> None:
    Path("other.md").write_text(PAGE, encoding="utf-8")
    found = run("diff", "page.md", "other.md", "--policy", "policy.yaml", "--json").json
    assert list(found) == ["kept", "added", "updated", "removed", "embeddings"]
    assert found["kept"]
    assert (found["added"], found["updated"], found["removed"], found["embeddings"]) == ([], [], [], 0)


def test_diff_of_a_word_edit_embeds_one_chunk_and_keeps_the_others(run: Run) -> None:
    Path("new.md").write_text(PAGE.replace("Write to us", "Call us"), encoding="utf-8")
    before = [chunk["chunk_id"] for chunk in run("chunk", "page.md", "-p", "policy.yaml", "--json").lines]
    found = run("diff", "page.md", "new.md", "--policy", "policy.yaml", "--json").json
    assert (len(found["added"]), len(found["removed"]), found["embeddings"]) == (1, 1, 1)
    assert sorted([*found["kept"], *found["updated"], *found["removed"]]) == sorted(before)


def test_diff_without_json_says_the_same_in_words(run: Run) -> None:
    Path("new.md").write_text(PAGE.replace("Write to us", "Call us"), encoding="utf-8")
    ran = run("diff", "page.md", "new.md", "--policy", "policy.yaml")
    assert "1 added, 0 updated, 1 removed; 1 of" in ran.err
    assert "Call us" in ran.out


@pytest.mark.parametrize("command", [("parse", "page.md"), ("chunk", "page.md", "-p", "policy.yaml")])
def test_a_pipe_gets_no_colours_and_whole_lines(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command)
    assert "\x1b" not in ran.out + ran.err
    assert "退款将在十四天内到账。" in ran.out


def test_wide_characters_keep_the_columns_in_line(run: Run) -> None:
    from rich.cells import cell_len

    header, *rows = run("chunk", "page.md", "-p", "policy.yaml").out.splitlines()
    column = header.index("text")
    starts = [cell_len(row[: row.index("##")]) for row in rows if "##" in row]
    assert len(starts) == 2
    assert set(starts) == {column}
