"""Gateways for the tests of the clients."""

from cursor_gateway.cli.clients.base import GatewayAddress, OfferedModel

MODELS = (OfferedModel("auto", "Auto"), OfferedModel("opus-4.6", 'Opus "4.6" – größer'))

PLAIN = GatewayAddress(url="http://127.0.0.1:8787")
FULL = GatewayAddress(
    url="http://127.0.0.1:8787", key="cgw_secret", models=MODELS, model="opus-4.6", workspace="/home/me/my project"
)
FOLDER = "/tmp/cursor-gateway-x"
