"""The images of a request in, files of the conversation out, where the agent can open them; and such files read again.

For a thread: images may have megabytes. What the files take counts towards `max_history_bytes`, and they are deleted
with their conversation.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from cursor_gateway.errors import NotFound
from cursor_gateway.model.messages import Image, is_image_name, media_type_of
from cursor_gateway.sources.private_files import private_folder, read_private, write_private

_LARGEST = 10_000_000  # bytes of an image that is shown


class AttachedImage(Struct, frozen=True, tag="attached"):
    """One that was sent with a message."""

    name: str


class WorkspaceImage(Struct, frozen=True, tag="workspace"):
    """One that an answer mentions."""

    path: str  # below the workspace, or absolute


ImagePlace: TypeAlias = AttachedImage | WorkspaceImage


def read_image_file(place: ImagePlace, folder: Path, workspace: str | None) -> bytes:
    """`folder` is the conversation's; the workspace is None if it may not be used. Raises `NotFound`."""
    data = b""
    match place:
        case AttachedImage(name=name):
            if is_image_name(name):
                data = _read_inside(folder / "images", name)
        case WorkspaceImage(path=path):
            if workspace is not None:
                data = _read_inside(Path(workspace), path)
    if media_type_of(data) is None:
        raise NotFound("There is no PNG, JPEG, GIF or WebP image of at most 10 MB at this path.", param="path")
    return data


def _read_inside(folder: Path, path: str) -> bytes:
    """Nothing if it is not a file in the folder. A link that leads out of it is not followed, also if it takes the
    place of a folder after the path was resolved."""
    try:
        root = folder.resolve()
        file = (root / path).resolve()
        return read_private(root, file, _LARGEST) if file.is_relative_to(root) else b""
    except (OSError, RuntimeError, ValueError):  # not there, or a loop of links
        return b""


def write_images(images: Sequence[Image], folder: Path) -> list[tuple[Image, str]]:
    """Each image with its file. Identical images share a file, which only its owner may read.

    `folder` is in a conversation's, three levels below the gateway's own directory.
    """
    with private_folder(folder.parents[2], folder) as opened:
        for name, image in {image.name: image for image in images}.items():
            write_private(opened, name, image.data)
    return [(image, str(folder / image.name)) for image in images]


def size_of(folder: Path) -> int:
    """The total size of the files in it, at any depth."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # deleted meanwhile
                continue
    return total
