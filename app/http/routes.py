"""Every route of turnlog."""

from litestar.types import ControllerRouterHandler

from app.http.health import health, ready, root
from app.http.models import list_models, read_model
from app.http.responses import create_response, read_events, read_response, upgrade_required

ROUTES: list[ControllerRouterHandler] = [
    create_response,
    upgrade_required,
    read_response,
    read_events,
    list_models,
    read_model,
    health,
    ready,
    root,
]
