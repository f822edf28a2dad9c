"""Images become files that nobody else may read, and whose size is known."""

import os
import stat
from pathlib import Path

import pytest

from cursor_gateway.errors import NotFound
from cursor_gateway.model.messages import Image
from cursor_gateway.sources import private_files
from cursor_gateway.workspace import host


def test_images_that_are_the_same_share_a_private_file(tmp_path: Path) -> None:
    images = [Image(2, "image/png", b"one"), Image(0, "image/gif", b"two!"), Image(3, "image/png", b"one")]
    written = host.write_images(images, tmp_path / "a" / "images")
    assert [image for image, _ in written] == images
    assert [Path(path).read_bytes() for _, path in written] == [b"one", b"two!", b"one"]
    assert written[0][1] == written[2][1]
    for _, path in written:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert private_files.size_of(tmp_path) == 7


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    image = Image(0, "image/png", b"one")
    (tmp_path / image.name).write_bytes(b"longer than before")
    (tmp_path / image.name).chmod(0o644)
    ((_, path),) = host.write_images([image], tmp_path)
    assert Path(path).read_bytes() == b"one"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    image = Image(0, "image/png", b"one")
    target = tmp_path / "elsewhere"
    (tmp_path / image.name).symlink_to(target)
    host.write_images([image], tmp_path)
    assert not target.exists()
    assert (tmp_path / image.name).read_bytes() == b"one"
    (tmp_path / "outside").mkdir()
    (tmp_path / "images").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="a link to one"):
        host.write_images([image], tmp_path / "images")
    assert list((tmp_path / "outside").iterdir()) == []


PNG = b"\x89PNG\r\n\x1a\n" + b"rest"


def refused(place: host.ImagePlace, folder: Path, workspace: Path | None) -> bool:
    try:
        host.read_image_file(place, folder, None if workspace is None else str(workspace))
    except NotFound:
        return True
    return False


def test_an_attached_image_is_read_by_its_name_only(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "conversations" / "conv"
    ((image, _),) = host.write_images([Image(0, "image/png", PNG)], folder / "images")
    assert host.read_image_file(host.AttachedImage(image.name), folder, None) == PNG
    (folder / "secret.png").write_bytes(PNG)
    assert refused(host.AttachedImage("../secret.png"), folder, None)
    assert refused(host.AttachedImage("0" * 16 + ".png"), folder, None)


def test_an_image_of_the_workspace_is_one_and_is_in_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "docs").mkdir(parents=True)
    (work / "docs" / "a b.png").write_bytes(PNG)
    (work / "fake.png").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>")
    (tmp_path / "outside.png").write_bytes(PNG)
    (work / "link.png").symlink_to(tmp_path / "outside.png")
    os.mkfifo(work / "pipe.png")
    (work / "large.png").write_bytes(PNG)
    os.truncate(work / "large.png", 10_000_001)
    for path in ("docs/a b.png", "docs/../docs/a b.png", str(work / "docs" / "a b.png")):
        assert host.read_image_file(host.WorkspaceImage(path), tmp_path, str(work)) == PNG
    for path in ("fake.png", "../outside.png", "link.png", "pipe.png", "large.png", "docs", "none.png", "", "a\0b"):
        assert refused(host.WorkspaceImage(path), tmp_path, work), path
    assert refused(host.WorkspaceImage("docs/a b.png"), tmp_path, None)  # a workspace that may not be used any more


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody else had swapped it after the path was resolved, and before the file was opened."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work / "docs", outside):
        folder.mkdir(parents=True)
        (folder / "a.png").write_bytes(PNG)
    is_inside = Path.is_relative_to

    def swapped(path: Path, other: Path) -> bool:
        (work / "docs").rename(work / "moved")
        (work / "docs").symlink_to(outside)
        return is_inside(path, other)

    monkeypatch.setattr(Path, "is_relative_to", swapped)
    assert refused(host.WorkspaceImage("docs/a.png"), tmp_path, work)
