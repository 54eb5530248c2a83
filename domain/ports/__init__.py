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
    CallConstraint,
    Cancelled,
    CompiledConstraint,
    Constraint,
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
    InferenceEngine,
    JsonConstraint,
    Prompt,
    ReasoningChunk,
    Submission,
    TextChunk,
    TurnStats,
    Vitals,
)
from turnlog.domain.ports.log import (
    AuditReader,
    ContentExpirer,
    EventJournal,
    EventReader,
    JournalLoad,
    LogExport,
    LogExporter,
)
from turnlog.domain.ports.models import InstancePins, ModelSource
from turnlog.domain.ports.wire import (
    Framer,
)

__all__ = [
    "EFFORTS",
    "AuditReader",
    "CacheHandle",
    "CallConstraint",
    "Cancelled",
    "Clock",
    "CompiledConstraint",
    "Constraint",
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
    "IdSource",
    "InferenceEngine",
    "InstancePins",
    "JournalLoad",
    "JsonConstraint",
    "LogExport",
    "LogExporter",
    "ModelSource",
    "Prompt",
    "ReasoningChunk",
    "Submission",
    "TextChunk",
    "TurnStats",
    "Vitals",
]
