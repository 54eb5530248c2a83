"""The conversation of docs/audit.md: an answer, a continuation that fails, and one that does not.

python docs/scripts/conversation.py http://127.0.0.1:8000
"""

import sys

import httpx


def ask(text: str, previous_response_id: str | None = None) -> httpx.Response:
    """One turn of the scripted model `small`."""
    body = {"model": "small", "input": text, "previous_response_id": previous_response_id}
    return httpx.post(f"{sys.argv[1]}/v1/responses", json=body)


first = ask("What is the weather in Graz?").raise_for_status().json()
assert ask("And tomorrow?", first["id"]).status_code == 500
ask("And in Linz?", first["id"]).raise_for_status()
