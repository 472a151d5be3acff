"""What is executed: tasks, their options, and the context that a task sees."""
