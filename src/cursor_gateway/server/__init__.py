"""The gateway over HTTP: access, requests, and streams of running answers."""
