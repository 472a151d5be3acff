"""What users hold: the scheduler and its schedules, runs and locks."""
