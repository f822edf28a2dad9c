"""The gateway over HTTP: access control, requests, and streams of answers."""
