"""Warm prefix_cache: what a model has read is kept, so that the next turn need not read it again.

No lookup holds a conversation. Every prompt is rendered whole from its request and its chain, and a warm
cache only spares the model what both begin with, so warmth changes neither prompt nor answer (D-24).
"""

from turnlog.app.prefix_cache.cache import CacheLookup, PrefixCache
from turnlog.app.prefix_cache.pool import CachePool, Scope

__all__ = ["CacheLookup", "CachePool", "PrefixCache", "Scope"]
