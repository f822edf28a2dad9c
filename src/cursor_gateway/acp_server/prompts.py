"""The content blocks of a prompt in; the message and the images for a gateway, out."""

import re
from collections.abc import Iterable
from posixpath import relpath

from msgspec import UNSET, Struct

from cursor_gateway.acp_server import shapes
from cursor_gateway.model.documents import fenced


class UnusablePrompt(ValueError):
    """With a message for the user."""


class Prompt(Struct, frozen=True):
    message: str
    images: list[str]  # data: URIs


def read_prompt(blocks: Iterable[shapes.PromptBlock], folder: str) -> Prompt:
    """Links stay where they are in the text; the contents that come with them follow it. Raises `UnusablePrompt`."""
    said: list[str] = []
    attached: list[str] = []
    images: list[str] = []
    for block in blocks:
        match block:
            case shapes.TextContent(text=text):
                said.append(text)
            case shapes.ResourceLinkBlock(uri=uri, name=name):
                said.append(_mention(uri, name, folder))
            case shapes.ImageContent(data=data, mime_type=kind):
                images.append(f"data:{kind};base64,{data}")
            case shapes.ResourceBlock(resource=resource) if resource.text is not UNSET:
                place = _mention(resource.uri, "", folder)
                said.append(place)
                attached.append(f"{place}\n{fenced('', resource.text)}")
            case shapes.ResourceBlock(resource=resource) if (resource.mime_type or "").startswith("image/"):
                images.append(f"data:{resource.mime_type};base64,{resource.blob}")
            case shapes.ResourceBlock(resource=resource):
                raise UnusablePrompt(f"{resource.uri} is neither text nor an image; attach something else.")
            case shapes.AudioBlock():
                raise UnusablePrompt("The agent cannot listen to audio; write the message instead.")
    message = "\n\n".join(["".join(said).strip(), *attached]).strip()
    if not message:
        raise UnusablePrompt("The prompt has no text; write what the agent should do.")
    return Prompt(message, images)


def _mention(uri: str, name: str, folder: str) -> str:
    """As Cursor's users write it: `@src/app.py`. What is not a file is a link."""
    scheme, colon, rest = uri.partition(":")
    if colon and scheme != "file":
        return f"[{name}]({uri})" if name else uri
    place, _, fragment = (rest if colon else uri).partition("#")
    path = _unquoted(place.removeprefix("//"))
    below = relpath(path, folder) if path.startswith("/") and folder else path
    lines = f" ({fragment})" if fragment else ""
    return f"@{path if below.startswith('../') else below}{lines}"


def _unquoted(path: str) -> str:
    """`%20` is a space. What is no UTF-8 is replaced."""
    data = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), path.encode("utf-8", "replace"))
    return data.decode("utf-8", "replace")
