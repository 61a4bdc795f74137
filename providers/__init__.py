"""Pulumi resource providers: what the `pulumi` command starts to create, read, change and delete."""
