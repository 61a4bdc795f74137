"""Puts back what was accepted, when somebody has edited a unit, a function or a pool behind the API."""
