"""Every route of turnlog."""

from litestar.types import ControllerRouterHandler

from turnlog.app.http.audit import (
    compare_turns,
    export_log,
    find_responses,
    read_conversation,
    read_timeline,
    read_turn,
    sum_usage,
)
from turnlog.app.http.chat import (
    create_completion,
    delete_completion,
    list_completions,
    read_completion,
    update_completion,
)
from turnlog.app.http.context import count_input_tokens, input_tokens_is_posted, list_input_items
from turnlog.app.http.documents import read_openapi
from turnlog.app.http.health import health, ready, root
from turnlog.app.http.metrics import read_metrics
from turnlog.app.http.models import list_models, load_model, read_model, swap_model, unload_model
from turnlog.app.http.operations import back_up, cancel_turn, delete_turns
from turnlog.app.http.replays import replay_response
from turnlog.app.http.responses import (
    cancel_response,
    create_response,
    delete_response,
    read_events,
    read_response,
    upgrade_required,
)

ROUTES: list[ControllerRouterHandler] = [
    create_response,
    upgrade_required,
    read_response,
    read_events,
    cancel_response,
    delete_response,
    create_completion,
    list_completions,
    read_completion,
    update_completion,
    delete_completion,
    list_input_items,
    count_input_tokens,
    input_tokens_is_posted,
    replay_response,
    back_up,
    cancel_turn,
    delete_turns,
    find_responses,
    read_turn,
    read_timeline,
    read_conversation,
    compare_turns,
    sum_usage,
    export_log,
    list_models,
    read_model,
    load_model,
    unload_model,
    swap_model,
    read_metrics,
    read_openapi,
    health,
    ready,
    root,
]
