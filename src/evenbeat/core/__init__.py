"""Plain values that every layer uses: instants, durations, ids, records."""
