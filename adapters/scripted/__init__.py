"""An engine that plays a JSON file instead of a model: for client developers, demos and tests."""
