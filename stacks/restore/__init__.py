"""Restore: makes a cluster whole again from the stacks, which say what was accepted. A command, run by a person."""
