"""Gateways for the tests of the clients."""

from cursor_gateway.cli.clients.base import Endpoint, Offered

MODELS = (Offered("auto", "Auto"), Offered("opus-4.6", 'Opus "4.6" – größer'))

PLAIN = Endpoint(url="http://127.0.0.1:8787")
FULL = Endpoint(
    url="http://127.0.0.1:8787", key="cgw_secret", models=MODELS, model="opus-4.6", workspace="/home/me/my project"
)
FOLDER = "/tmp/cursor-gateway-x"
