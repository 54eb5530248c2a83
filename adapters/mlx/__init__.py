"""Inference with MLX: local models on Apple silicon, and on the CPU elsewhere.

`mlx` takes a second to import, so nothing here does it: import `engine` when a model is wanted.
"""
