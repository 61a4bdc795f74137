"""A stand-in for the official plugin `pulumi-resource-kubernetes`, for machines that cannot get it.

Programs use the `pulumi-kubernetes` package as always. Any kind is handled alike, as plain JSON by server-side apply on
the real API server; docs/adr/0010-stand-in-kubernetes-plugin.md says what is different.
"""
