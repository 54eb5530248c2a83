"""Logs as each released version wrote them; every later version must load, fold and render them the same."""
