"""Images become files that nobody else may read, and whose size is known."""

import os
import stat
from pathlib import Path

import pytest

from cursor_gateway.model.images import Image
from cursor_gateway.runs.image_files import size_of, write_images


def test_images_that_are_the_same_share_a_private_file(tmp_path: Path) -> None:
    images = [Image(2, "image/png", b"one"), Image(0, "image/gif", b"two!"), Image(3, "image/png", b"one")]
    written = write_images(images, tmp_path / "a" / "images")
    assert [image for image, _ in written] == images
    assert [Path(path).read_bytes() for _, path in written] == [b"one", b"two!", b"one"]
    assert written[0][1] == written[2][1]
    for _, path in written:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert size_of(tmp_path) == 7


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    image = Image(0, "image/png", b"one")
    (tmp_path / image.name).write_bytes(b"longer than before")
    (tmp_path / image.name).chmod(0o644)
    ((_, path),) = write_images([image], tmp_path)
    assert Path(path).read_bytes() == b"one"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    image = Image(0, "image/png", b"one")
    target = tmp_path / "elsewhere"
    (tmp_path / image.name).symlink_to(target)
    write_images([image], tmp_path)
    assert not target.exists()
    assert (tmp_path / image.name).read_bytes() == b"one"
    (tmp_path / "outside").mkdir()
    (tmp_path / "images").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="a link to one"):
        write_images([image], tmp_path / "images")
    assert list((tmp_path / "outside").iterdir()) == []


def test_what_is_not_there_takes_no_room(tmp_path: Path) -> None:
    assert size_of(tmp_path / "nowhere") == 0
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert size_of(tmp_path) == len(str(tmp_path / "nowhere"))
