"""The host of a URL that a rule is matched with: the one that every program finds, or none."""

import json
import random
import shutil
import subprocess
from urllib.parse import urlsplit

import pytest

from cursor_gateway.sources.cursor.permissions import host_of

FOUND = {
    "https://example.com": "example.com",
    "http://EXAMPLE.com:8080/a?b#c": "example.com",
    "HTTPS://a_b-c.example.com?x=@evil.com": "a_b-c.example.com",
    "http://127.0.0.1/": "127.0.0.1",
    "http://xn--bcher-kva.example/": "xn--bcher-kva.example",
}
NONE = [
    "http://u:p@example.com:80@evil.com/",
    "http://me@example.com/",
    "http://@example.com/",
    "http://example.com@evil.com",
    "http://evil.com\\@example.com/",
    "http:\\\\example.com/",
    "http:/example.com/",
    "http:example.com",
    "//example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http://example.com.",
    "http://example..com/",
    "http://exam\tple.com/",
    "http://example.com\n.evil.com/",
    " http://example.com/",
    "http://example.com /",
    "http://ex%61mple.com/",
    "http://example.com%2eevil.com/",
    "http://bücher.example/",
    "http://example。com/",
    "http://[::1]/",
    "http://0x7f.1/",
    "http://2130706433/",
    "http://127.1/",
    "http://0177.0.0.1/",
    "http://256.0.0.1/",
    "http://1.2.3.4.5/",
    "http://example.com:",
    "http://example.com:99999999/",
    "http://example.com:80a/",
    "http:///",
    "",
]


@pytest.mark.parametrize(("url", "host"), FOUND.items())
def test_hosts(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize("url", NONE)
def test_urls_that_are_asked_about(url: str) -> None:
    assert host_of(url) == ""


PIECES = [
    *(
        "http",
        "https",
        "HTTP",
        "ftp",
        "file",
        "ws",
        "javascript",
        ":",
        "://",
        "//",
        "/",
        "\\",
        "\\\\",
        "?",
        "#",
        "@",
        ".",
    ),
    *(
        "example.com",
        "EXAMPLE.com",
        "evil.com",
        "a",
        "-",
        "_",
        "xn--bcher-kva",
        "bücher",
        "。",
        "%41",
        "%2e",
        "%40",
        "%00",
    ),
    *(
        "[::1]",
        "[",
        "]",
        "127.0.0.1",
        "127.1",
        "0x7f",
        "1",
        "256",
        "0177",
        ":80",
        ":8080",
        ":0",
        ":99999",
        ":a",
        "u:p@",
    ),
    *(
        "\t",
        "\n",
        "\r",
        " ",
        "\u00a0",
        "\u200b",
        "\u00ad",
        "\x00",
        "ⓔ",
        "ß",
        "http://",
        "https://",
        "https://example.com",
    ),
]
_NODE = """
const urls = JSON.parse(require("fs").readFileSync(0, "utf8"));
const host = (url) => { try { return new URL(url).hostname } catch { return null } };
console.log(JSON.stringify(urls.map(host)));
"""


def generated(seed: int, count: int) -> dict[str, str]:
    """URLs that have a host for us, and the host."""
    chosen, found = random.Random(seed), dict[str, str]()
    for _ in range(count):
        start = chosen.choice(["http://", "https://", "http://example.com", ""])
        url = start + "".join(chosen.choice(PIECES) for _ in range(chosen.randrange(1, 7)))
        if host := host_of(url):
            found[url] = host
    assert found
    return found


def test_python_finds_the_same_host() -> None:
    for url, host in generated(0, 20_000).items():
        assert urlsplit(url).hostname == host, url


def test_node_finds_the_same_host() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    found = generated(1, 20_000)
    asked = subprocess.run(
        [node, "-e", _NODE], input=json.dumps(list(found)), capture_output=True, text=True, timeout=60, check=True
    )
    for (url, host), theirs in zip(found.items(), json.loads(asked.stdout), strict=True):
        assert theirs in (host, None), url  # None: it fetches nothing
