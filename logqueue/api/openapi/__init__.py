"""The API described for machines: OpenAPI 3.1, generated from the table of operations.

Owns: the document and its schemas. Bodies come from `api.bodies`, replies from `logqueue.shapes`,
refusals from `logqueue.errors`. Must not know: what handlers do.
"""

from __future__ import annotations

from logqueue.api.openapi.document import document, encoded

__all__ = ["document", "encoded"]
