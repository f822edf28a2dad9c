"""`python -m cursor_gateway`."""

from cursor_gateway.cli.main import main

main()
