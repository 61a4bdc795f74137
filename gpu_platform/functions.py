"""What the code of a function imports: `from gpu_platform.functions import Answer, Context, handler`.

Needs nothing but Python. `serverless` has the same names, for images that hold a copy of the framework alone.
"""

from serverless import Answer, Context, Function, handler

__all__ = ["Answer", "Context", "Function", "handler"]
