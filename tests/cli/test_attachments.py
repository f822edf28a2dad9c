"""A prompt in; the images that it names out."""

from pathlib import Path

import pytest

from cursor_gateway.cli.terminal.session import images_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("look at shot.png", ["shot.png"]),
        ("look at @shot.png, please", ["shot.png"]),
        ("(see shot.png.)", ["shot.png"]),
        ("SHOUT.JPG!", ["SHOUT.JPG"]),
        (r"dropped: two\ words.webp", ["two words.webp"]),
        ("'two words.webp' and \"shot.png\"", ["two words.webp", "shot.png"]),
        ("shot.png shot.png", ["shot.png"]),
        ("@ and ' and missing.png and notes.txt", []),
        ("~nobody-of-that-name/a.png and " + "x" * 5000 + ".png", []),
        ("a\0.png", []),
    ],
)
def test_paths_of_images_that_exist(text: str, found: list[str], tmp_path: Path) -> None:
    for name in ("shot.png", "SHOUT.JPG", "two words.webp", "notes.txt"):
        (tmp_path / name).touch()
    assert images_in(text, tmp_path, {}) == [tmp_path / name for name in found]


def test_an_address_of_a_file_and_what_was_pasted(tmp_path: Path) -> None:
    (tmp_path / "two words.png").touch()
    address = f"file://{tmp_path}/two%20words.png"
    found = images_in(f"[image 2] {address} [image 1] [image 3]", tmp_path, {"[image 1]": b"a", "[image 2]": b"b"})
    assert found == [b"b", b"a", tmp_path / "two words.png"]
