"""Compressed bodies are read as they were before, within the bound of a body."""

import gzip
import json
import zlib
from collections.abc import Callable

import httpx
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.app.http.test_turns import refused
from tests.security.conftest import MOST_BODY_BYTES
from turnlog.adapters.litestar.compressed import _DECODERS as DECODERS

BODY = json.dumps({"model": "scripted", "input": "hi"}).encode()
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}
each_encoding = pytest.mark.parametrize("encoding", COMPRESSORS)


def send(http: httpx.Client, body: bytes, encoding: str) -> httpx.Response:
    """A request whose body is said to be compressed."""
    headers = {"content-type": "application/json", "content-encoding": encoding}
    return http.post("/v1/responses", content=body, headers=headers)


@each_encoding
@pytest.mark.parametrize("spelling", [str.lower, str.upper], ids=["lower", "upper"])
def test_a_compressed_body_is_read(http: httpx.Client, encoding: str, spelling: Callable[[str], str]) -> None:
    answer = send(http, COMPRESSORS[encoding](BODY), spelling(encoding))

    assert answer.json()["output_text"] == "Hello"


@each_encoding
@given(body=st.binary(max_size=300_000) | st.integers(0, 500_000).map(bytes), data=st.data())
def test_where_a_compressed_body_is_cut_does_not_matter(
    encoding: str, body: bytes, data: st.DataObject
) -> None:
    compressed = COMPRESSORS[encoding](body)
    cut = data.draw(st.integers(0, len(compressed)))
    decoder = DECODERS[encoding](MOST_BODY_BYTES)

    read = [piece for part in (compressed[:cut], compressed[cut:]) for piece in decoder.pieces(part)]

    assert b"".join(read) == body
    assert decoder.is_whole()


@each_encoding
def test_a_bomb_is_cut_off(http: httpx.Client, encoding: str) -> None:
    """CVE-2024-12886: a small body that becomes a big one (here 50 MB)."""
    bomb = COMPRESSORS[encoding](bytes(50 * MOST_BODY_BYTES))

    assert len(bomb) < MOST_BODY_BYTES
    assert refused(send(http, bomb, encoding), 413)["code"] == "body_too_large"


@each_encoding
def test_of_a_bomb_little_is_decoded_at_once(encoding: str) -> None:
    bomb = COMPRESSORS[encoding](bytes(50 * MOST_BODY_BYTES))

    pieces = DECODERS[encoding](MOST_BODY_BYTES).pieces(bomb)

    assert max(len(next(pieces)) for _ in range(3)) <= 2 * 1024 * 1024


def test_a_body_of_empty_frames_is_no_way_round_the_bound(http: httpx.Client) -> None:
    """They become nothing, so only what was sent can be counted."""
    skippable = b"\x50\x2a\x4d\x18" + (MOST_BODY_BYTES).to_bytes(4, "little") + bytes(MOST_BODY_BYTES)

    assert refused(send(http, skippable, "zstd"), 413)["code"] == "body_too_large"


@each_encoding
@pytest.mark.parametrize(
    "spoil",
    [lambda body: body[:-1], lambda body: body + b"x", lambda _: BODY, lambda _: b""],
    ids=["cut", "something behind it", "not compressed", "nothing"],
)
def test_a_broken_body_is_refused(http: httpx.Client, encoding: str, spoil: Callable[[bytes], bytes]) -> None:
    answer = send(http, spoil(COMPRESSORS[encoding](BODY)), encoding)

    assert refused(answer, 400)["code"] == "invalid_content_encoding"


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "gzip,zstd", "x" * 1000])
def test_other_encodings_are_not_supported(http: httpx.Client, encoding: str) -> None:
    error = refused(send(http, gzip.compress(BODY), encoding), 415)

    assert error["code"] == "unsupported_content_encoding"
    assert "gzip, deflate, zstd" in error["message"]


def test_identity_is_no_compression(http: httpx.Client) -> None:
    assert send(http, BODY, "identity").status_code == 200
