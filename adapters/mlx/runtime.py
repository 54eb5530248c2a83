"""The one door to `mlx` and `mlx_lm`: what must be so in the process before they are imported is done here.

Whatever this package needs of the two is imported from here. That keeps the order right, and shows in one
place how much of `mlx_lm`, whose interfaces move often, turnlog stands on.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress


def _load_openblas() -> ctypes.CDLL | None:
    """Put a system OpenBLAS before the reference BLAS that MLX brings on Linux: 40 times faster."""
    for name in ("libopenblas.so.0", "libopenblas.so"):
        with suppress(OSError):
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    return None


# `MLX_DISABLE_OPENBLAS=1` leaves it alone, so that a benchmark can show what it is worth.
_wanted = sys.platform == "linux" and os.environ.get("MLX_DISABLE_OPENBLAS") != "1"
_openblas = _load_openblas() if _wanted else None

OPENBLAS = _openblas is not None
"""Whether dense matrix products on this CPU are fast."""

_CORES = _openblas.openblas_get_num_threads() if _openblas else 1


def use_all_cores(*, wanted: bool) -> None:
    """Whether OpenBLAS shares the next products out among all cores (or those its own settings name).

    Its threads wait for work by turning in circles, which keeps a big model quick. With a small one, waiting
    takes more of the processors than computing.
    """
    if _openblas:
        _openblas.openblas_set_num_threads(_CORES if wanted else 1)


if sys.platform == "linux":
    # On a CPU, compiled kernels save nothing, and the first use of each runs a C++ compiler.
    os.environ.setdefault("MLX_DISABLE_COMPILE", "1")

# `mlx_lm` lowers the process's limit of open files to 4096 when it is imported; a server needs its sockets.
_set_limit = resource.setrlimit
resource.setrlimit = lambda *_: None
try:
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.generate import BatchGenerator, GenerationBatch, PromptProcessingBatch
    from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache
    from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p, greedy_sampler
    from mlx_lm.utils import dequantize_model, load_model, load_tokenizer
finally:
    resource.setrlimit = _set_limit

ON_GPU = mx.default_device().type == mx.DeviceType.gpu
"""Whether there is a GPU to compute on (Metal, on a Mac)."""


def release_memory() -> None:
    """Give memory that was freed, but is kept for later use, back to the system."""
    mx.clear_cache()
    if _malloc_trim is not None:
        _malloc_trim(0)


def _c_function(name: str) -> Callable[[int], int] | None:
    """A function of the C library; None where it has none of this name."""
    try:
        found: Callable[[int], int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return found


# glibc keeps what was freed as well.
_malloc_trim = _c_function("malloc_trim") if sys.platform == "linux" else None


def slow_because() -> str | None:
    """Why this process computes slowly and what would help, if there is something."""
    if ON_GPU or OPENBLAS or sys.platform != "linux":
        return None
    return (
        "No OpenBLAS was found, so models read a prompt some 20 times slower than they could here; "
        "install the system's OpenBLAS (Debian: libopenblas0-pthread) and start again."
    )


__all__ = [
    "ON_GPU",
    "OPENBLAS",
    "BatchGenerator",
    "GenerationBatch",
    "PromptProcessingBatch",
    "apply_min_p",
    "apply_top_k",
    "apply_top_p",
    "can_trim_prompt_cache",
    "dequantize_model",
    "greedy_sampler",
    "load_model",
    "load_tokenizer",
    "make_prompt_cache",
    "mx",
    "release_memory",
    "slow_because",
    "tree_flatten",
    "trim_prompt_cache",
    "use_all_cores",
]
