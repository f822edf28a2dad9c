"""The models of the agent over HTTP, in OpenAI's form."""

import time
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import unknown_model
from cursor_gateway.runs.service import Service
from cursor_gateway.sources.base import Model


class ModelEntry(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "cursor"
    name: str | UnsetType = UNSET  # ours: for people


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelEntry]


class ModelEndpoints:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._began = int(time.time())

    async def models(self, request: Request) -> Response:
        models = await self._service.source.models()
        return _json(ModelList(data=[self._entry(model) for model in models]))

    async def model(self, request: Request) -> Response:
        id = request.path_params["id"]
        models = await self._service.source.models()
        for model in models:
            if model.id == id:
                return _json(self._entry(model))
        self._service.source.check_model(id)
        raise unknown_model(id, [])

    def _entry(self, model: Model) -> ModelEntry:
        return ModelEntry(id=model.id, created=self._began, name=model.label or UNSET)


def _json(value: Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
