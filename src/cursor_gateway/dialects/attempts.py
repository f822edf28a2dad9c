"""Tell from a request's headers which attempt it is, if an SDK of OpenAI's or Anthropic's counts them."""

from collections.abc import Mapping

from cursor_gateway.model.run_info import Attempt

_COUNT = "x-stainless-retry-count"


def numbered_attempt(headers: Mapping[str, str]) -> Attempt:
    match headers.get(_COUNT):
        case None:
            return "only"
        case "0":
            return "first"
        case _:
            return "retry"
