"""Whose a response is: it and everything made from it belong to the owner that asked for it (D-18)."""

LOCAL_OWNER = "local"
"""The one owner there is while no keys are in use."""
