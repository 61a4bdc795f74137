"""Pulumi plans (`preview --json`) as a table, as Markdown, and held against rules."""
