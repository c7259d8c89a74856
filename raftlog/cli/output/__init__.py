"""How commands print: text, JSON, progress, and views of topics and groups."""
