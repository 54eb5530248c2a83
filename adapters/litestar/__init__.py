"""Litestar's side of a stream: bytes that come over time become an answer, and a hang-up is noticed."""
