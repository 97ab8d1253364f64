"""Record: what all travelling values share: frozen, closed against unknown fields, named and versioned."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

REVISION_LIMIT = 2**53
"""Revisions and order keys stay below this: Qdrant compares ranges as float64, which is exact only up to here."""

_CONTROL = re.compile("[\x00-\x1f\x7f]")
TENANT_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Frozen(BaseModel):
    """A value that can't change and takes no field it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False, ser_json_inf_nan="strings")


class Record(Frozen):
    """A value with a name and a version on the wire: ``{"schema": "docdelta.<name>/<version>", ...}``."""

    record_name: ClassVar[str]
    record_version: ClassVar[int] = 1


def _plain_tenant(value: str) -> str:
    if not TENANT_PATTERN.fullmatch(value):
        raise ValueError("tenant_id must be 1-64 letters, digits, '.', '_' or '-', and begin with a letter or digit")
    return value


def _printable_id(value: str) -> str:
    if not value.strip():
        raise ValueError("document_id is blank")
    if len(value.encode("utf-8")) > 512:
        raise ValueError("document_id is longer than 512 bytes")
    if _CONTROL.search(value):
        raise ValueError("document_id holds a control character")
    return value


def _no_nul(value: str) -> str:
    if "\x00" in value:
        raise ValueError("text holds a NUL character")
    return value


TenantId = Annotated[str, AfterValidator(_plain_tenant)]
"""No slash: the Kafka key is ``tenant/document`` and is taken apart at the first slash."""
DocumentId = Annotated[str, AfterValidator(_printable_id)]
Revision = Annotated[int, Field(ge=0, lt=REVISION_LIMIT, strict=True)]
CleanText = Annotated[str, AfterValidator(_no_nul)]
JsonScalar = str | int | float | bool | None
Attributes = dict[str, Any]


def document_key(tenant_id: str, document_id: str) -> bytes:
    """Return the Kafka key of a document: ``tenant/document`` in UTF-8. Equal keys share a partition in every topic."""
    return f"{tenant_id}/{document_id}".encode()


def split_document_key(key: bytes) -> tuple[str, str]:
    """Return (tenant_id, document_id) of a key made by `document_key`. Raises ValueError on any other bytes."""
    tenant, slash, document = key.decode("utf-8").partition("/")
    if not slash:
        raise ValueError("key is not tenant/document")
    return _plain_tenant(tenant), _printable_id(document)
