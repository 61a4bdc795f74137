"""Functions: `@handler` on a Python function makes it one that the platform can call."""

from serverless.framework.functions import Context, Function, handler

__all__ = ["Context", "Function", "handler"]
