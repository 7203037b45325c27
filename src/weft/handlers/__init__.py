"""Handlers: the code that runs a task, the registry of handlers, and the output or error of a call."""
