"""Generate JSON Schema, OpenAPI components and TypeScript definitions from the msgspec types."""

from cursor_gateway.schema.json_schema import json_schema, openapi_components
from cursor_gateway.schema.typescript import typescript

__all__ = ["json_schema", "openapi_components", "typescript"]
