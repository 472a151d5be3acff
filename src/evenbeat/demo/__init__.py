"""The demo: an app with tasks of every kind."""
