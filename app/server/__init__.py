"""The composition root, and the server it makes."""
