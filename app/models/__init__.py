"""Everything between an accepted request and its slot on a model.

`Models` is what the use cases see. Behind it are small synchronous pieces, each with one idea: `lane` (who
may run), `cold` (who may wait for a load), `registry` and `tombstones` (what a name means), `gate` and
`memory` (what there is room for); `loading` and `waiting` are the asynchronous part.
"""

from turnlog.app.models.admission import Admission
from turnlog.app.models.registry import Lease
from turnlog.app.models.service import Models, ModelStatus

__all__ = ["Admission", "Lease", "ModelStatus", "Models"]
