"""The gateway over HTTP: who may come in, what is asked, and how a run is told while it happens."""
