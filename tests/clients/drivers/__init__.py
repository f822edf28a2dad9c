"""Programs that use one client each, for the tests to start: questions as lines of JSON on stdin, answers on stdout.

They run in `.venv-clients`, and for each question in a folder that holds the only copy of what their tool finds out.
"""
