"""Logins of devices at a shared gateway, as its API shows them."""

from typing import Annotated

from msgspec import Meta, Struct


class LoginRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A login."""

    code: Annotated[str, Meta(description="The code from the link.", max_length=200)]


class LoginKey(Struct, frozen=True):
    """The key of a device that has logged in."""

    key: Annotated[str, Meta(description="An API key for this device.")]


class LoginLink(Struct, frozen=True):
    """A link with which one device can log in."""

    url: Annotated[str, Meta(description="The link. Open it on the device.")]
    expires_at: Annotated[int, Meta(description="When it expires, in seconds since 1970.")]


class DeviceEntry(Struct, frozen=True):
    """A device that has logged in."""

    id: Annotated[str, Meta(description="Its id.")]
    name: Annotated[str, Meta(description="What it calls itself (`User-Agent`).")]
    created_at: Annotated[int, Meta(description="When it logged in, in seconds since 1970.")]
    expires_at: Annotated[int, Meta(description="When it must log in again, in seconds since 1970.")]


class DeviceList(Struct, frozen=True):
    """The devices that have logged in."""

    devices: Annotated[list[DeviceEntry], Meta(description="The oldest first.")]
