"""outlined(): the document with clauses and chapters found in its plain lines, once a document."""

from __future__ import annotations

from chunking.document import Document


def outlined(document: Document) -> Document:
    """Return the document after the outline pass."""
    try:
        from chunking.outline import outline
    except ImportError:
        return document
    return outline(document)
