"""Names of spans, metrics and log fields, and what records them."""
