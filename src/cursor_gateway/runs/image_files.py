"""The images of a request in, files of the conversation out, where the agent can open them.

For a thread: images may have megabytes. What the files take counts towards `max_history_bytes`, and they are deleted
with their conversation.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from cursor_gateway.model.images import Image
from cursor_gateway.sources.private_files import private_folder, write_private


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
