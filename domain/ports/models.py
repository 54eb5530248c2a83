"""What the writes of turns need of the models."""

from typing import Protocol


class Retains(Protocol):
    """Keeps a model's instance id alive while writes that carry it are under way (R-069 … R-076).

    Known by the id alone, so that a wedged write keeps no model in memory. No call fails: what concerns an
    id that is gone is ignored.
    """

    def retain(self, instance_id: int) -> None:
        """One more write carries the id; it stays the model's until as many were released."""

    def release(self, instance_id: int) -> None:
        """One of the writes does not need the id any more; the model may lose it."""

    def retire(self, instance_id: int) -> bool:
        """Let the same model inherit the id when it is registered again, until `unretire` is called.

        Returns:
            Whether a model has the id now; if not, nothing was retired and nothing is to be undone.
        """

    def unretire(self, instance_id: int) -> None:
        """One of the writes for which the id was retired has settled."""
