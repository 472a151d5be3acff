"""How a run is executed: in a thread, on an event loop, in a process."""
