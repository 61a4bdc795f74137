"""Pulumi by hand on one of the platform's stacks: the same state and program, the plugin instead of the worker."""
