"""The event store on `eventsourcing`: a journal that writes the log and a reader that reads it."""
