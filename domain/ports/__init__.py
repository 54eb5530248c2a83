"""What the domain needs of the world: an engine that makes tokens, a log that keeps events, time and ids.

Synchronous on purpose: what takes time answers by a `Future` or by a callback, and each adapter says
which thread it answers on.
"""

from turnlog.domain.ports.chance import (
    Clock,
    IdSource,
)
from turnlog.domain.ports.engine import (
    EFFORTS,
    CacheHandle,
    CallGuide,
    Cancelled,
    CompiledGuide,
    Crash,
    Deliver,
    End,
    EngineCall,
    EngineChunk,
    EngineCrashed,
    EngineFailed,
    EngineFinal,
    EngineInfo,
    EngineOutput,
    Exhausted,
    FinishReason,
    Guide,
    InferenceEngine,
    JsonGuide,
    Prompt,
    ReasoningChunk,
    Spent,
    Submission,
    TextChunk,
    Vitals,
)
from turnlog.domain.ports.log import (
    AuditReader,
    ContentEraser,
    ContentExpirer,
    EventJournal,
    EventReader,
    JournalLoad,
    LogExporter,
    LogPass,
)
from turnlog.domain.ports.models import ModelSource, Retains
from turnlog.domain.ports.wire import (
    Framer,
)

__all__ = [
    "EFFORTS",
    "AuditReader",
    "CacheHandle",
    "CallGuide",
    "Cancelled",
    "Clock",
    "CompiledGuide",
    "ContentEraser",
    "ContentExpirer",
    "Crash",
    "Deliver",
    "End",
    "EngineCall",
    "EngineChunk",
    "EngineCrashed",
    "EngineFailed",
    "EngineFinal",
    "EngineInfo",
    "EngineOutput",
    "EventJournal",
    "EventReader",
    "Exhausted",
    "FinishReason",
    "Framer",
    "Guide",
    "IdSource",
    "InferenceEngine",
    "JournalLoad",
    "JsonGuide",
    "LogExporter",
    "LogPass",
    "ModelSource",
    "Prompt",
    "ReasoningChunk",
    "Retains",
    "Spent",
    "Submission",
    "TextChunk",
    "Vitals",
]
