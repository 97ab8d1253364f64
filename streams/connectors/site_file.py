"""site.yaml: what a folder says about its files beside their content: id, title, language, kind, labels, address, readers.

files:
  policies/refund.zh.md:
    id: policy-refund-zh        # document id; default: the file's path in the folder
    title: 退款政策
    language: zh-CN
    kind: policy
    labels: [policy, customer]
    source_uri: https://example.org/policies/refund
    acl: [staff]                # groups that may read it; leave out where the site does not say
    attributes: {owner: legal}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from chunking.yaml_text import YamlFault, read_yaml
from schemas.document_change import AttributeValue
from streams.errors import UsageError
from streams.words import unreadable

SITE_FILE = "site.yaml"


class FileMetadata(BaseModel):
    """What is said about one file. Empty values mean "not said": the parser's own findings then stand."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = ""
    title: str = ""
    language: str = ""
    kind: str = ""
    labels: tuple[str, ...] = ()
    source_uri: str = ""
    acl: tuple[str, ...] | None = None
    attributes: Mapping[str, AttributeValue] = Field(default_factory=dict)

    @field_validator("labels", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class SiteFile(BaseModel):
    """The whole file. `files` is by path relative to the folder, with forward slashes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: Mapping[str, FileMetadata] = Field(default_factory=dict)


def load_site_file(root: Path) -> SiteFile:
    """Return the folder's ``site.yaml``, or an empty one. Raises UsageError naming the line or field."""
    path = root / SITE_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return SiteFile()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read: {unreadable(error)}") from error
    try:
        return SiteFile.model_validate(read_yaml(text)[1] or {})
    except YamlFault as error:
        raise UsageError(f"{path}{f':{error.line}' if error.line else ''}: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in fault["loc"]) or "site file"
        words = "unknown key" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, ")
        raise UsageError(f"{path}: {place}: {words}") from error
