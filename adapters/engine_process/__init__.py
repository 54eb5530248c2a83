"""An engine in a process of its own, seen from the server (docs/decisions/0019).

The server spawns two processes for a model and speaks with each over a socket: the engine process computes,
the text process renders, encodes and compiles. What runs in them is `turnlog.adapters.mlx`, which is named
here by its module path only: nothing in the server imports MLX, transformers or tokenizers.
"""
