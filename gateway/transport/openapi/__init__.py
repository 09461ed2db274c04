"""The API described: an OpenAPI document made from the types and routes, and a page made from the document."""
