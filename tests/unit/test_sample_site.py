"""The sample site: every page is listed, every edit fits its page, every golden question has its answer where it says."""

from __future__ import annotations

import html
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from streams.connectors.site_file import SITE_FILE, load_site_file
from streams.embedded.sample_edits import Edit, load_edits
from streams.errors import UsageError

SITE = Path(__file__).resolve().parents[2] / "deploy" / "sample-site"
FILES = load_site_file(SITE).files
EDITS = load_edits(SITE)
GOLDEN: list[dict[str, Any]] = yaml.safe_load((SITE / "golden.yaml").read_text(encoding="utf-8"))["questions"]
PATH_OF = {said.id: path for path, said in FILES.items()}


def source(path: str) -> str:
    data = (SITE / path).read_bytes()
    return data.decode("gb18030" if path.startswith("notices/") else "utf-8")


def visible(path: str) -> str:
    """Return a page's text as a reader sees it, roughly: markup and Markdown table edges gone."""
    text = source(path)
    if path.endswith(".html"):
        text = html.unescape(re.sub(r"<[^>]*>", "\n", re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)))
    return text


def headings(path: str) -> list[str]:
    if path.endswith(".html"):
        return [html.unescape(title) for title in re.findall(r"<h[1-6]>(.*?)</h[1-6]>", source(path))]
    return [line.lstrip("# ").rstrip() for line in source(path).splitlines()]


def test_the_site_file_names_every_page_and_nothing_else() -> None:
    pages = {path.relative_to(SITE).as_posix() for path in SITE.glob("*/*") if path.is_file()}
    assert pages == set(FILES)
    assert len(PATH_OF) == len(FILES)
    for said in FILES.values():
        assert said.id
        assert said.title
        assert said.kind
        assert said.labels
        assert said.language in ("zh-CN", "en")


def test_the_site_is_bilingual_and_has_every_basic_format() -> None:
    kinds = Counter((Path(path).suffix, said.language) for path, said in FILES.items())
    assert set(kinds) == {(suffix, language) for suffix in (".md", ".html", ".txt") for language in ("zh-CN", "en")}
    assert sum((SITE / path).stat().st_size for path in FILES) > 60_000


def test_the_notice_is_gb18030_and_nothing_else() -> None:
    data = (SITE / "notices/office-move.zh.txt").read_bytes()
    with pytest.raises(UnicodeDecodeError):
        data.decode("utf-8")
    assert data.decode("gb18030").startswith("关于苏州总部搬迁的通知")


def test_the_session_costs_what_the_readme_promises() -> None:
    assert [edit.embeddings for edit in EDITS] == [1, 1, 0, 1, 0, 0, 0, 0]
    assert len({edit.file for edit in EDITS}) == len(EDITS)


@pytest.mark.parametrize("edit", EDITS, ids=[edit.title for edit in EDITS])
def test_every_edit_does_to_a_copy_of_the_site_what_it_says(edit: Edit, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(SITE, site)
    edit.apply(site)
    before = {path: (SITE / path).read_bytes() for path in FILES}
    after = {path: (site / path).read_bytes() for path in FILES if (site / path).exists()}
    changed = {path for path in FILES if before[path] != after.get(path)}
    said_before, said_after = load_site_file(SITE), load_site_file(site)
    resaid = {path for path in FILES if said_before.files[path] != said_after.files[path]}
    if edit.remove or edit.unpublish:
        assert edit.file not in after
        assert (changed, resaid) == ({edit.file}, set())
    elif edit.metadata:
        assert (changed, resaid) == (set(), {edit.file})
    elif edit.save:
        assert (changed, resaid) == (set(), set())
    else:
        assert (changed, resaid) == ({edit.file}, set())
    if edit.move:
        old, new = before[edit.file].decode().splitlines(), after[edit.file].decode().splitlines()
        assert sorted(old) == sorted(new)
        assert new.index(edit.move.before) > new.index(edit.move.section) > 0
        assert old.index(edit.move.before) < old.index(edit.move.section)


def test_unpublishing_keeps_the_page_where_a_sync_does_not_look(tmp_path: Path) -> None:
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "a.md").write_text("text")
    Edit(title="t", file="news/a.md", unpublish=True, embeddings=0).apply(tmp_path)
    assert (tmp_path / ".drafts" / "news" / "a.md").read_text() == "text"


@pytest.mark.parametrize("text", ["no such words", "twice twice"])
def test_an_edit_that_does_not_fit_exactly_once_is_refused(text: str) -> None:
    edit = Edit.model_validate({"title": "t", "file": "f.md", "replace": {"find": "twice", "put": "once"}, "embeddings": 1})
    with pytest.raises(UsageError, match=r"occurs [02] times in f\.md, not once"):
        edit.text_after(text)


@pytest.mark.parametrize(
    ("section", "before", "result"),
    [
        pytest.param("## c", "## b", "# t\n\n## c\n3\n## b\n2\n### d\n4\n", id="up-from-the-end"),
        pytest.param("## b", "## c", "# t\n\n## b\n2\n### d\n4\n## c\n3\n", id="down-to-where-it-stands"),
    ],
)
def test_a_section_moves_with_all_below_it(section: str, before: str, result: str) -> None:
    move = {"section": section, "before": before}
    edit = Edit.model_validate({"title": "t", "file": "f.md", "move": move, "embeddings": 0})
    assert edit.text_after("# t\n\n## b\n2\n### d\n4\n## c\n3\n") == result


def test_an_edit_does_exactly_one_thing() -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        Edit.model_validate({"title": "t", "file": "f.md", "save": True, "remove": True, "embeddings": 0})


def test_there_are_sixty_golden_questions_in_both_languages() -> None:
    languages = Counter(FILES[PATH_OF[golden["document"]]].language for golden in GOLDEN)
    assert sum(languages.values()) >= 60
    assert min(languages.values()) >= 25
    assert len({golden["question"] for golden in GOLDEN}) == len(GOLDEN)


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden["question"] for golden in GOLDEN])
def test_every_golden_question_is_answered_where_it_says(golden: dict[str, Any]) -> None:
    path = PATH_OF[golden["document"]]
    text = visible(path)
    assert golden["fragment"] in text
    assert set(golden.get("heading_path", ())) <= set(headings(path))
    if clause := golden.get("clause"):
        assert re.search(rf"^{re.escape(clause)}\s", text, re.MULTILINE)


def test_questions_ask_for_pages_that_the_session_leaves_alone_in_the_end() -> None:
    gone = {FILES[edit.file].id for edit in EDITS if edit.remove or edit.unpublish}
    assert gone.isdisjoint(golden["document"] for golden in GOLDEN)


def test_the_site_file_is_the_only_yaml_a_sync_reads() -> None:
    assert {path.name for path in SITE.glob("*.yaml")} == {SITE_FILE, "edits.yaml", "golden.yaml"}
