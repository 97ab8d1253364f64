"""What docdelta uses of qdrant-client, imported here alone and without fastembed.

qdrant-client imports fastembed wherever it is installed, and with it onnxruntime and a model hub's client: seconds of processor
time for a way of making vectors that nothing here uses. Where fastembed can't be imported it does without. So it is told, while it
is imported, and whenever a client is made. Who needs fastembed (`streams/embedders`) imports it afterwards as ever.
"""

from __future__ import annotations

import sys

_hidden = "fastembed" not in sys.modules
if _hidden:
    sys.modules["fastembed"] = None  # type: ignore[assignment]  # Python's way to say: can't be imported
try:
    from qdrant_client import AsyncQdrantClient, QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
    from qdrant_client.fastembed_common import FastEmbedMisc
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
    from qdrant_client.hybrid.fusion import reciprocal_rank_fusion
    from qdrant_client.local.payload_filters import check_filter
finally:
    if _hidden:
        del sys.modules["fastembed"]

FastEmbedMisc.is_installed = classmethod(lambda cls: False)  # type: ignore[assignment,method-assign]

__all__ = [
    "ApiException",
    "AsyncQdrantClient",
    "QdrantClient",
    "QdrantException",
    "ResourceExhaustedResponse",
    "ResponseHandlingException",
    "UnexpectedResponse",
    "check_filter",
    "models",
    "reciprocal_rank_fusion",
]
