"""Chat Completions, a second reading and writing of the same turns."""
