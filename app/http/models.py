"""The routes of models."""

from typing import Any

from litestar import get

from app.models import ServedModel
from app.service import Service

Json = dict[str, Any]


@get("/v1/models")
async def list_models(service: Service) -> Json:
    """The served models (R-006, D-16)."""
    return {"object": "list", "data": [_model_object(model) for model in service.models.all()]}


@get("/v1/models/{name:str}")
async def read_model(name: str, service: Service) -> Json:
    """One served model; clients ask for it to see whether a name is known."""
    return _model_object(service.models.find(name))


def _model_object(model: ServedModel) -> Json:
    return {"id": model.name, "object": "model", "created": model.registered_s, "owned_by": "turnlog"}
