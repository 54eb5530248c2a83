"""What can be loaded, and what the writes of turns need of the models."""

from typing import Protocol

from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.ports.engine import InferenceEngine


class ModelSource(Protocol):
    """A model that was declared, such as a folder or a script; nothing of it is in memory yet.

    Two sources of the same thing are equal, so that names which mean the same share one model.
    """

    @property
    def weight_bytes(self) -> int:
        """About how much memory the model will take once it is loaded."""

    @property
    def defaults(self) -> ModelDefaults:
        """The model's own defaults for parameters that a request does not set."""

    def load(self) -> InferenceEngine:
        """Load the model. Any thread; takes seconds, more for big models.

        Raises:
            EngineError: it cannot be used; the message names it and the problem.
        """


class InstancePins(Protocol):
    """Keeps a model's instance id alive while writes that carry it are under way (R-069 … R-076).

    Known by the id only, so that a wedged write keeps no model in memory. No call fails: what concerns an
    id that is gone is ignored.
    """

    def pin(self, instance_id: int) -> None:
        """One more write carries the id; it stays the model's until as many were released."""

    def unpin(self, instance_id: int) -> None:
        """One of the writes does not need the id any more; the model may lose it."""

    def retire(self, instance_id: int) -> bool:
        """Let the same model inherit the id when it is registered again, until `unretire` is called.

        Returns:
            Whether a model has the id now; if not, nothing was retired and nothing is to be undone.
        """

    def unretire(self, instance_id: int) -> None:
        """One of the writes for which the id was retired has settled."""
