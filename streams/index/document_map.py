"""DocumentMap: points of a document and marks of points, kept beside local mode, where a filter would walk over all points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


class DocumentMap:
    """(tenant, document) to point ids, and back. Points without these fields count under ("", "")."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], set[str]] = {}
        self._document: dict[str, tuple[str, str]] = {}
        self._marks: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._document)

    def ids_of(self, tenant_id: str, document_id: str) -> list[str]:
        """Return the point ids of a document, in no order."""
        return list(self._points.get((tenant_id, document_id), ()))

    def all_ids(self) -> list[str]:
        """Return all point ids, in no order."""
        return list(self._document)

    def digests(self, first: float, end: float) -> dict[int, int]:
        """Return how many points carry each digest, among those whose bucket lies in first..end-1."""
        return dict(Counter(digest for bucket, digest in self._marks.values() if first <= bucket < end))

    def marked(self, first: float, end: float, digests: Collection[int]) -> list[str]:
        """Return the points that carry one of these digests in these buckets."""
        return [point for point, (bucket, digest) in self._marks.items() if first <= bucket < end and digest in digests]

    def unmarked(self) -> list[str]:
        """Return the points without marks."""
        return [point for point in self._document if point not in self._marks]

    def replace(self, touched: Iterable[str], found: Mapping[str, tuple[str, str]], marks: Mapping[str, tuple[int, int]]) -> None:
        """Set what is known of the points in `touched` to what was found of them; those not found are gone."""
        for identity in touched:
            self._marks.pop(identity, None)
        self._marks.update(marks)
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
