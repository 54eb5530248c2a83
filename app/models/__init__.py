"""Everything between an accepted request and its slot on a model.

`Models` is the interface to the use cases. Behind it are small synchronous modules: `lane` (who may run),
`admission` (who may wait for a load), `registry` (the binding of each name, and retired ids), `gate` and
`memory` (room for weights and turns); `loading` and `waiting` are the asynchronous part.
"""

from turnlog.app.models.admission import Admission
from turnlog.app.models.registry import Lease
from turnlog.app.models.service import Models
from turnlog.app.models.status import ModelStatus

__all__ = ["Admission", "Lease", "ModelStatus", "Models"]
