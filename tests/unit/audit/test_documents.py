"""An inventory of the source against the log: what is missing here, unknown there, older here."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.audit.documents import Listed, compare_inventory, read_inventory
from streams.errors import UsageError
from streams.repair.newest import Newest


def event(revision: int, op: str = "upsert") -> Newest:
    return Newest(revision, op, 0, 0)  # type: ignore[arg-type]


LOG = {
    b"acme/same": event(3),
    b"acme/old": event(3),
    b"acme/gone": event(3, "delete"),
    b"acme/more": event(1),
    b"other/x": event(1),
}
SOURCE = [Listed(b"acme/same", 3), Listed(b"acme/old", 4), Listed(b"acme/gone", 5), Listed(b"acme/never", None)]


def test_differences_are_named_for_the_tenants_of_the_inventory() -> None:
    found = {(each.kind, each.key) for each in compare_inventory(SOURCE, LOG)}
    assert found == {
        ("older_than_source", b"acme/old"),
        ("missing_here", b"acme/gone"),
        ("missing_here", b"acme/never"),
        ("unknown_at_source", b"acme/more"),
    }


def test_a_tenant_whose_source_is_empty_can_be_named() -> None:
    assert [(each.kind, each.key) for each in compare_inventory([], LOG, "other")] == [("unknown_at_source", b"other/x")]
    assert compare_inventory([], LOG) == []


def test_jsonl_and_csv_say_the_same(tmp_path: Path) -> None:
    jsonl, table = tmp_path / "a.jsonl", tmp_path / "a.csv"
    jsonl.write_text(
        '{"tenant": "acme", "document": "a,\u2028b", "revision": 3}\n\n{"tenant_id": "acme", "document_id": "c"}\n', "utf-8"
    )
    table.write_text('\ufefftenant,document,revision\nacme,"a,\u2028b",3\nacme,c,\n', "utf-8")
    expected = [Listed("acme/a,\u2028b".encode(), 3), Listed(b"acme/c", None)]
    assert read_inventory(jsonl) == read_inventory(table) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('{"tenant": "acme"}', "entry 1: needs the fields", id="no document"),
        pytest.param('{"tenant": "acme", "document": "a"}\n{', "entry 2: needs the fields", id="no JSON"),
        pytest.param('{"tenant": "a b", "document": "a"}', "entry 1: tenant_id", id="a tenant that can't be"),
        pytest.param("tenant,document,revision\nacme,a,soon", "entry 1: invalid", id="a revision that is none"),
        pytest.param("tenant,document,revision\nacme,a,-1", "outside", id="a revision below 0"),
        pytest.param("what,ever\n1,2", "needs the fields", id="other columns"),
    ],
)
def test_an_entry_that_can_not_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "inventory"
    file.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=said):
        read_inventory(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        read_inventory(tmp_path / "none")
