"""The stack worker: keeps a Pulumi stack for each unit and pool that the API accepted. A process of its own."""
