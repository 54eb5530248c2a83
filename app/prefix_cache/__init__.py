"""The prefix cache: keeps the KV caches of finished turns, so that the next turn need not prefill again.

It holds no conversation. Every prompt is rendered whole from its request and its chain; a cache entry only
saves computing their common prefix, so it changes neither prompt nor answer (D-24).
"""

from turnlog.app.prefix_cache.cache import CacheLookup, PrefixCache
from turnlog.app.prefix_cache.pool import CachePool, Scope

__all__ = ["CacheLookup", "CachePool", "PrefixCache", "Scope"]
