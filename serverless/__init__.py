"""Functions: `@handler` on a Python function makes it one that the platform can call."""

from serverless.framework.calls import Answer
from serverless.framework.functions import Context, Function, handler

__all__ = ["Answer", "Context", "Function", "handler"]
