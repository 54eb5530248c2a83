"""Turns: accepted, planned, run, stored, found again."""
