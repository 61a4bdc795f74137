"""Puts back what was accepted, when somebody has edited a unit or a pool behind the API."""
