"""``app.schedules``: one object, with a module for the calls about each concept."""
