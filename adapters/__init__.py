"""The world outside, one noun each: event store, engines, wire format, clock and ids."""
