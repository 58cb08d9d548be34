"""The API described for machines: OpenAPI 3.1, generated from the types that the code uses.

Owns: what is said about each route (rows), and the document made of it. Bodies come from the wire
structs, replies from `logqueue.shapes`, refusals from `logqueue.errors`, scopes and body policies
from the table of routes. Must not know: what handlers do. A test fails where a route has no row.
"""

from __future__ import annotations

from logqueue.api.openapi.document import OpenApiRoute, document

__all__ = ["OpenApiRoute", "document"]
