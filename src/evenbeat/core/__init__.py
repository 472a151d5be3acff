"""Plain values that every layer uses: instants, durations, ids, records, and their checks and JSON texts."""
