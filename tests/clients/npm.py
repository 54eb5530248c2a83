"""Where npm puts the clients, and the Node that runs them."""

import shutil
from pathlib import Path
from typing import Final

JS: Final = Path(__file__).parent / "js"

MODULES: Final = JS / "node_modules"


def node() -> str:
    """The Node that comes with the clients, else the machine's own; they need 22."""
    assert MODULES.is_dir(), "the clients are not installed: run `make clients`"
    found = shutil.which("node", path=MODULES / ".bin") or shutil.which("node")
    assert found, "there is no Node for this machine"
    return found
