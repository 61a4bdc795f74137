"""The Kubernetes objects as plain values: pure functions of the settings, without Pulumi."""
