"""The headers of a request in; the name of the program that sent it, for people, out."""

import re
from collections.abc import Mapping

# By the beginnings of what programs call themselves, in lower case.
_NAMES = {
    "claude-cli": "Claude Code",
    "codex": "Codex",
    "opencode": "OpenCode",
    "kilo": "Kilo Code",
    "qwen": "Qwen Code",
    "gemini": "Gemini CLI",
    "zed": "Zed",
    "continue": "Continue",
    "cline": "Cline",
    "roo": "Roo Code",
    "goose": "Goose",
    "aider": "Aider",
    "litellm": "LiteLLM",
    "openwebui": "Open WebUI",
    "openai": "an OpenAI client",
    "anthropic": "an Anthropic client",
}
_BROWSER = "mozilla"  # a person at the page
OF_PEOPLE = ("", "cursor-gateway")  # the page, and the gateway's own commands
_PRODUCT = re.compile(r"[\w.@+-]{1,40}")


def client_name(headers: Mapping[str, str]) -> str:
    """Empty for a browser, and for who does not say."""
    called = headers.get("originator") or headers.get("user-agent") or ""
    product = _PRODUCT.match(called.strip())
    if product is None or product[0].lower().startswith(_BROWSER):
        return ""
    lower = product[0].lower()
    return next((name for start, name in _NAMES.items() if lower.startswith(start)), product[0])
