"""What is told about the work: events, and logs. Called by the loops, never by a store."""
