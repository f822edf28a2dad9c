from cursor_gateway.cli.clients.base import listed, to_json
from cursor_gateway.cli.clients.table import CLIENTS
from tests.cli.clients.endpoints import FULL, PLAIN


def test_an_endpoint_has_the_addresses_and_headers_that_clients_want() -> None:
    assert PLAIN.openai_url == "http://127.0.0.1:8787/v1"
    assert PLAIN.mcp_url == "http://127.0.0.1:8787/mcp"
    assert PLAIN.headers == {"x-cursor-text": "readable"}
    assert FULL.headers == {"x-cursor-workspace": "/home/me/my project", "x-cursor-text": "readable"}


def test_json_is_for_people() -> None:
    assert to_json({"name": "größer"}) == '{\n  "name": "größer"\n}\n'


def test_a_client_is_a_program_that_may_have_several_names() -> None:
    assert CLIENTS["kilo"].programs == ("kilo", "kilocode")
    assert CLIENTS["zed"].programs == ("zed",)


def test_clients_are_listed_in_columns() -> None:
    assert listed({name: CLIENTS[name] for name in ("pi", "zed")}) == "      pi   pi\n      zed  Zed"
