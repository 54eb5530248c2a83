"""The tables of the read model, made anew whenever its version changes, and the indexes look-ups need.

`n` numbers the responses in the order in which they were stored. Every index for one value ends in the time
of creation, so that whatever it leads to comes newest first without sorting.

`responses.expires_at` is what the response's own request and its server set, and, once its content was
removed, when it did expire. The view `expiries` has when a response expires: a conversation that is used
keeps its responses, except those that their requests limited. A conversation is `expired` when all its
responses are.
"""

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS readmodel_version (version INTEGER NOT NULL)"

TABLES = (
    "DROP VIEW IF EXISTS expiries",
    "DROP TABLE IF EXISTS conversations",
    "DROP TABLE IF EXISTS responses",
    "DROP TABLE IF EXISTS response_items",
    "DROP TABLE IF EXISTS response_metadata",
    "DROP TABLE IF EXISTS response_tools",
    """
    CREATE TABLE responses (
        n INTEGER PRIMARY KEY,
        response_id TEXT NOT NULL UNIQUE,
        previous_response_id TEXT,
        replay_of TEXT,
        chain TEXT NOT NULL,
        follows TEXT,
        surface TEXT NOT NULL,
        owner TEXT NOT NULL,
        model TEXT NOT NULL,
        state TEXT NOT NULL,
        status TEXT NOT NULL,
        outcome TEXT,
        reason TEXT,
        created_ms INTEGER NOT NULL,
        started_ms INTEGER,
        ended_ms INTEGER,
        expires_at INTEGER NOT NULL,
        limited INTEGER NOT NULL,
        last_version INTEGER NOT NULL,
        owed_steers INTEGER NOT NULL,
        deleted_at INTEGER,
        expired INTEGER NOT NULL,
        input_tokens INTEGER,
        output_tokens INTEGER,
        cached_tokens INTEGER,
        reasoning_tokens INTEGER,
        retry_digest BLOB,
        body_digest BLOB,
        transcript_digest BLOB,
        is_retry INTEGER NOT NULL
    )
    """,
    "CREATE INDEX responses_newest ON responses (created_ms)",
    "CREATE INDEX responses_of_owner ON responses (owner, created_ms)",
    "CREATE INDEX responses_of_model ON responses (model, created_ms)",
    "CREATE INDEX responses_of_surface ON responses (surface, created_ms)",
    """
    CREATE INDEX responses_of_transcript ON responses (transcript_digest, owner, created_ms)
    WHERE transcript_digest IS NOT NULL
    """,
    "CREATE INDEX responses_of_status ON responses (status, created_ms)",
    "CREATE INDEX responses_owing ON responses (created_ms) WHERE owed_steers > 0",
    "CREATE INDEX responses_of_reason ON responses (reason, created_ms) WHERE reason IS NOT NULL",
    "CREATE INDEX responses_of_chain ON responses (chain, created_ms)",
    "CREATE INDEX replays ON responses (replay_of, created_ms) WHERE replay_of IS NOT NULL",
    "CREATE INDEX responses_of_body ON responses (body_digest, created_ms) WHERE body_digest IS NOT NULL",
    "CREATE INDEX responses_of_retry ON responses (retry_digest, created_ms) WHERE retry_digest IS NOT NULL",
    "CREATE INDEX responses_by_latency ON responses (ended_ms - created_ms) WHERE ended_ms IS NOT NULL",
    "CREATE INDEX responses_by_tokens ON responses (input_tokens + output_tokens) WHERE ended_ms IS NOT NULL",
    "CREATE INDEX responses_with_content ON responses (chain, expires_at, response_id) WHERE NOT expired",
    "CREATE INDEX responses_limited ON responses (expires_at, response_id) WHERE limited AND NOT expired",
    """
    CREATE INDEX responses_deleted ON responses (response_id) WHERE deleted_at IS NOT NULL AND NOT expired
    """,
    """
    CREATE TABLE conversations (
        chain TEXT PRIMARY KEY,
        expires_at INTEGER NOT NULL,
        expired INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX conversations_with_content ON conversations (expires_at, chain) WHERE NOT expired",
    """
    CREATE VIEW expiries AS
    SELECT
        response_id,
        CASE
            WHEN deleted_at IS NOT NULL THEN min(responses.expires_at, deleted_at)
            WHEN limited OR responses.expired THEN responses.expires_at
            ELSE max(responses.expires_at, conversations.expires_at)
        END AS expires_at
    FROM responses JOIN conversations USING (chain)
    """,
    """
    CREATE TABLE response_items (
        item_id TEXT PRIMARY KEY,
        response_id TEXT NOT NULL,
        output_index INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX items_of_response ON response_items (response_id)",
    """
    CREATE TABLE response_metadata (
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (key, value, created_ms, n)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX metadata_of_response ON response_metadata (n)",
    """
    CREATE TABLE response_tools (
        name TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (name, created_ms, n)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX tools_of_response ON response_tools (n)",
)
