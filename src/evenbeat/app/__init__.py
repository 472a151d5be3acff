"""The façade for users: the scheduler and its schedules, runs and locks."""
