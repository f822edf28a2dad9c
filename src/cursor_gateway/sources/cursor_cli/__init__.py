"""`cursor-agent -p --output-format stream-json`."""
