"""Tests of what runs beside user code."""
