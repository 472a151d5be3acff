"""The demonstration: an app with a job of every kind."""
