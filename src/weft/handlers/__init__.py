"""The code that runs a task: what a handler is, which there are, and how its end is put into words."""
