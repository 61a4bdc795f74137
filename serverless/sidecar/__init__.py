"""Stands between the queue and the user's code: takes calls, has them run, and writes their one end."""
