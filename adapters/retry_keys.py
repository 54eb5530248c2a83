"""The headers by which clients mark a request as one sent again. The log keeps them under these names."""

from turnlog.domain.events import IDEMPOTENCY_KEY

RETRY_COUNT = "x-stainless-retry-count"
RETRY_HEADERS = (IDEMPOTENCY_KEY, "x-client-request-id", RETRY_COUNT)
