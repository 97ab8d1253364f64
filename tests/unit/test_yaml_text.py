"""YAML that people write: what is doubtful is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunking.policy import PolicyError, load_policy
from chunking.yaml_text import YamlFault, read_yaml
from streams.connectors.site_file import load_site_file
from streams.errors import UsageError


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        pytest.param("a: 1\nb: 2\na: 3\n", "'a' stands twice", 3, id="a key twice"),
        pytest.param("a:\n  - {b: 1, b: 2}\n", "'b' stands twice", 2, id="a key twice, deep inside"),
        pytest.param("a: 'x\n", "not YAML", 2, id="an open quote"),
        pytest.param("a: " + "[" * 5000, "nested too deeply", 0, id="nested without end"),
        pytest.param("a: 2020-13-45\n", "not YAML", 0, id="a day that does not exist"),
        pytest.param("a: !!python/object/apply:os.getcwd []\n", "not YAML", 1, id="code"),
    ],
)
def test_what_is_doubtful_is_refused_by_line(text: str, words: str, line: int) -> None:
    with pytest.raises(YamlFault, match=words) as raised:
        read_yaml(text)
    assert raised.value.line == line


def test_anchors_may_be_shared_and_go_in_circles() -> None:
    _, value = read_yaml("a: &a {x: 1}\nb: *a\nc: &c [*c]\n")
    assert value["a"] is value["b"]
    assert value["c"][0] is value["c"]


def test_a_policy_and_a_site_file_say_where_a_key_stands_twice(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="mine:2: key 'name' stands twice"):
        load_policy("name: x\nname: y\n", "mine")
    (tmp_path / "site.yaml").write_text("files:\n  a.md: {acl: [staff]}\n  a.md: {}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"site\.yaml:3: key 'a.md' stands twice"):
        load_site_file(tmp_path)
