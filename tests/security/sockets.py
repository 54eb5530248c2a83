"""Bare connections to a server, for what no HTTP client would send."""

import json
import socket


def head(*lines: str, route: str = "POST /v1/responses") -> bytes:
    """The head of a request with these header lines."""
    return "\r\n".join([f"{route} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def post(body: bytes, *lines: str) -> bytes:
    """A whole request for a turn."""
    return head("Content-Type: application/json", f"Content-Length: {len(body)}", *lines) + body


def asking(text: str, **fields: object) -> bytes:
    """A whole request that says `text`."""
    return post(json.dumps({"model": "scripted", "input": text, **fields}).encode())


def rest(client: socket.socket) -> bytes:
    """All that still comes, until the connection is closed or reset."""
    told = b""
    try:
        while chunk := client.recv(1 << 20):
            told += chunk
    except ConnectionError:
        return told
    return told


def error_of(told: bytes) -> tuple[int, str]:
    """Status and code of an answer that is a refusal in the envelope of the API."""
    first, _, body = told.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert error.keys() == {"type", "message", "code", "param"}
    assert error["message"]
    return int(first.split()[1]), error["code"]
