"""The types, tables and commands in; the pages below docs/reference out."""
