"""The Pulumi provider `gpuplatform`: units, stock pools and the catalogue as resources of a Pulumi program.

The platform's own stacks record through it what the API accepted; anybody else's program may declare with it. It writes
custom resources by the same guarded writes as the API, and keeps nothing between two calls.
"""
