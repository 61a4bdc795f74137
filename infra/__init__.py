"""The bootstrap program: what `pulumi up` makes of a cluster."""
