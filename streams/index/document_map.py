"""DocumentMap: which points a document has, kept beside local mode, where asking with a filter would walk over all points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class DocumentMap:
    """(tenant, document) to point ids, and back. Points without these fields count under ("", "")."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], set[str]] = {}
        self._document: dict[str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._document)

    def ids_of(self, tenant_id: str, document_id: str) -> list[str]:
        """Return the point ids of a document, in no order."""
        return list(self._points.get((tenant_id, document_id), ()))

    def all_ids(self) -> list[str]:
        """Return all point ids, in no order."""
        return list(self._document)

    def replace(self, touched: Iterable[str], found: Mapping[str, tuple[str, str]]) -> None:
        """Set what is known of the points in `touched` to what was found of them; those not found are gone."""
        for identity in touched:
            if identity not in found:
                self._forget(identity)
        for identity, document in found.items():
            if self._document.get(identity) != document:
                self._forget(identity)
                self._document[identity] = document
                self._points.setdefault(document, set()).add(identity)

    def _forget(self, identity: str) -> None:
        document = self._document.pop(identity, None)
        if document is None:
            return
        points = self._points[document]
        points.discard(identity)
        if not points:
            del self._points[document]
