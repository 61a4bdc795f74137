"""What every provider of ours needs to speak Pulumi's provider protocol, whatever its resources are."""
