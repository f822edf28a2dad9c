"""Images of a request: read from data: URIs alone, named for what they hold, and placed in their messages."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.messages import (
    Image,
    Instructions,
    Message,
    ToolMessage,
    UserMessage,
    check_images,
    is_image_name,
    media_type_of,
    place_images,
    read_image,
)

DATA = b"\x89PNG\r\n\x1a\n"
ENCODED = base64.b64encode(DATA).decode()


@given(st.binary(min_size=1), st.sampled_from(["image/png", "image/jpeg", "image/gif", "image/webp"]))
def test_a_data_uri_gives_back_what_was_put_in(data: bytes, media_type: str) -> None:
    uri = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    assert read_image(uri, "images[0]", 3) == Image(3, media_type, data)


@pytest.mark.parametrize(
    "uri",
    [
        f"DATA:IMAGE/PNG;BASE64,{ENCODED}",
        f"data:image/png;name=a.png;base64,{ENCODED}",
        f"data:image/png;base64,{ENCODED[:4]}\r\n {ENCODED[4:]}\n",
        f"data:image/png;base64,{ENCODED.rstrip('=')}",
        f"data:image/png;base64,{ENCODED}====",
    ],
)
def test_the_forms_that_clients_send_are_read(uri: str) -> None:
    assert read_image(uri, "images[0]") == Image(0, "image/png", DATA)


def test_jpg_is_another_name_for_jpeg() -> None:
    image = read_image(f"data:image/jpg;base64,{ENCODED}", "images[0]")
    assert image.media_type == "image/jpeg"
    assert image.name.endswith(".jpg")


@pytest.mark.parametrize(
    "uri",
    [
        "https://example.org/a.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        f"data:image/svg+xml;base64,{ENCODED}",
        f"data:text/html;base64,{ENCODED}",
        "data:image/png,raw",
        f"data:;base64,{ENCODED}",
        f"image/png;base64,{ENCODED}",
        f"data:image/png{';a=b' * 100};base64,{ENCODED}",
    ],
)
def test_nothing_is_fetched_and_no_other_kind_is_taken(uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^images\[1\]: Image URLs are not fetched") as caught:
        read_image(uri, "images[1]")
    assert caught.value.param == "images[1]"


@pytest.mark.parametrize("data", ["", "=", "A", "AA=A", "Ä", "not base64!", "AAAAA"])
def test_what_is_no_base64_is_refused(data: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^images\[0\]: The data: URI is not valid base64") as caught:
        read_image(f"data:image/png;base64,{data}", "images[0]")
    assert caught.value.param == "images[0]"


def test_the_same_image_always_has_the_same_name_and_another_has_another() -> None:
    first, same, other = Image(0, "image/png", b"a"), Image(7, "image/png", b"a"), Image(0, "image/png", b"b")
    assert first.name == same.name == "ca978112ca1bbdca.png"
    assert other.name != first.name
    assert Image(0, "image/gif", b"a").name == "ca978112ca1bbdca.gif"


def test_each_image_is_named_in_its_own_message() -> None:
    messages: list[Message] = [Instructions("a"), UserMessage("b"), ToolMessage("c", "call_1"), UserMessage("d")]
    images = [Image(3, "image/png", b"1"), Image(1, "image/png", b"2"), Image(3, "image/png", b"3")]
    assert place_images(messages, images, ["/1", "/2", "/3"]) == [
        Instructions("a"),
        UserMessage("b", images=("/2",)),
        ToolMessage("c", "call_1"),
        UserMessage("d", images=("/1", "/3")),
    ]
    assert place_images(messages, [], []) == messages


def test_an_image_without_its_file_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        place_images([UserMessage("a")], [Image(0, "image/png", b"1")], [])


@pytest.mark.parametrize("count", [0, 49, 50])
def test_so_many_images_are_not_too_many(count: int) -> None:
    check_images(count, 50, "images")


def test_more_are_refused_with_the_setting_that_says_so() -> None:
    with pytest.raises(InvalidRequest, match=r"51 images, but the limit is 50; .*`max_images`") as refused:
        check_images(51, 50, "images")
    assert refused.value.param == "images"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (DATA, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"", None),
    ],
)
def test_the_first_bytes_tell_what_an_image_is(data: bytes, media_type: str | None) -> None:
    assert media_type_of(data) == media_type


def test_only_an_images_own_name_is_one() -> None:
    name = Image(0, "image/png", DATA).name
    assert is_image_name(name)
    assert not any(map(is_image_name, ("", "../" + name, name + "/x", name + "\n", name.replace("png", "svg"))))
