"""Programs that use one client each, for the tests to start: a question as JSON on stdin, the answer as JSON on stdout.

They run in `.venv-clients` and in a folder of their own, which holds the only copy of what their tool finds out.
"""
