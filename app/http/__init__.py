"""The HTTP layer: routes that read a request, ask the use cases and answer in the API's words."""
