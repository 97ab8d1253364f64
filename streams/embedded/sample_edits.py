"""The editor's session of the demo, as data: ``edits.yaml`` of the sample site. What each edit does, and what it must cost.

    edits:
      - title: One word in the middle of a page changes
        file: guides/handbook.en.md
        replace: {find: within 24 hours, put: within 36 hours}
        embeddings: 1

Exactly one of `replace`, `move`, `metadata`, `remove`, `unpublish`, `save` says what the editor does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from streams.connectors.site_file import SITE_FILE
from streams.errors import UsageError

EDITS_FILE = "edits.yaml"
DRAFTS = ".drafts"
"""Folder of unpublished pages. Hidden, so that a sync doesn't see it."""
ACTIONS = ("replace", "move", "metadata", "remove", "unpublish", "save")


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Replace(_Closed):
    """`find` occurs once in the page and becomes `put`."""

    find: str = Field(min_length=1)
    put: str


class Move(_Closed):
    """The section under the heading line `section`, up to the next heading as high, goes before the heading line `before`."""

    section: str = Field(pattern=r"^#+ ")
    before: str = Field(pattern=r"^#+ ")


class Edit(_Closed):
    """One step of the session. `embeddings` is what it must cost under the default policy."""

    title: str
    file: str
    embeddings: int = Field(ge=0)
    replace: Replace | None = None
    move: Move | None = None
    metadata: Mapping[str, Any] | None = None
    """Fields of the page's entry in ``site.yaml`` that get other values."""
    remove: bool = False
    unpublish: bool = False
    save: bool = False

    @model_validator(mode="after")
    def _one_action(self) -> Edit:
        given = [name for name in ACTIONS if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(ACTIONS)} is needed; got {', '.join(given) or 'none'}")
        return self

    def text_after(self, text: str) -> str:
        """Return a page's text after this edit; the same text where the edit leaves it alone. Raises UsageError: it doesn't fit."""
        if self.replace:
            self._once(text.count(self.replace.find), self.replace.find)
            return text.replace(self.replace.find, self.replace.put)
        return self._moved(text, self.move) if self.move else text

    def apply(self, site: Path) -> None:
        """Do to the folder what the editor does. Raises UsageError where the edit doesn't fit the page."""
        page = site / self.file
        if not page.is_file():
            raise UsageError(f"edit {self.title!r}: {self.file} is not in the site")
        if self.metadata:
            self._edit_site_file(site / SITE_FILE)
        elif self.remove:
            page.unlink()
        elif self.unpublish:
            draft = site / DRAFTS / self.file
            draft.parent.mkdir(parents=True, exist_ok=True)
            page.replace(draft)
        else:
            before = page.read_bytes()
            page.write_bytes(self.text_after(before.decode("utf-8")).encode("utf-8"))

    def _moved(self, text: str, move: Move) -> str:
        lines = text.splitlines(keepends=True)
        starts = [number for number, line in enumerate(lines) if line.rstrip() == move.section]
        self._once(len(starts), move.section)
        level = len(move.section) - len(move.section.lstrip("#"))
        as_high = tuple("#" * marks + " " for marks in range(1, level + 1))
        start = starts[0]
        end = next((number for number in range(start + 1, len(lines)) if lines[number].startswith(as_high)), len(lines))
        section, rest = lines[start:end], lines[:start] + lines[end:]
        targets = [number for number, line in enumerate(rest) if line.rstrip() == move.before]
        self._once(len(targets), move.before)
        return "".join(rest[: targets[0]] + section + rest[targets[0] :])

    def _edit_site_file(self, path: Path) -> None:
        site = yaml.safe_load(path.read_text(encoding="utf-8"))
        if self.file not in site["files"]:
            raise UsageError(f"edit {self.title!r}: {self.file} has no entry in {SITE_FILE}")
        site["files"][self.file] = {**site["files"][self.file], **(self.metadata or {})}
        path.write_text(yaml.safe_dump(site, allow_unicode=True, sort_keys=False), encoding="utf-8")

    def _once(self, count: int, wanted: str) -> None:
        if count != 1:
            raise UsageError(f"edit {self.title!r}: {wanted[:60]!r} occurs {count} times in {self.file}, not once")


class _EditsFile(_Closed):
    edits: tuple[Edit, ...]


def load_edits(site: Path) -> tuple[Edit, ...]:
    """Return the session of a site. Raises UsageError naming the file and the field."""
    path = site / EDITS_FILE
    try:
        return _EditsFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).edits
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{path} can't be read: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in fault["loc"])
        raise UsageError(f"{path}: {place}: {fault['msg'].removeprefix('Value error, ')}") from error
