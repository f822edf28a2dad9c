"""Render documents, or document events, as semantic HTML that cannot do harm.

Nothing here reads a clock or a file but its own stylesheet, and no script is needed to read what it writes.
"""
