"""What the service does: use cases, HTTP routes, command line, settings and the composition root."""
