"""What can be told of a folder with an MLX model by reading its files; no MLX is needed for it."""
