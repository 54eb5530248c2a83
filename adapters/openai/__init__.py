"""The OpenAI Responses wire format: bodies to commands, events to objects and SSE frames. No I/O."""
