"""The purity rule: a decision takes everything it needs as arguments and returns a value.

It has no clock, no chance, no environment, no log and nothing to wait for, so that the same arguments give
the same answer in a test, in a retry and in production. It applies to `gpu_platform/domain` and to every
`plan.py`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

DOMAIN = Path("gpu_platform/domain")

IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "time",
        "random",
        "secrets",
        "os",
        "logging",
        "structlog",
        "subprocess",
        "socket",
        "threading",
    }
)
IMPURE_CALLS = frozenset(
    {
        "now",
        "utcnow",
        "today",
        "time",
        "monotonic",
        "perf_counter",
        "uuid1",
        "uuid4",
        "open",
        "print",
        "input",
    }
)
CLOCKS = frozenset({"now", "utcnow", "today"})
CLOCK_OWNERS = frozenset({"date", "datetime"})
WAITING = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def must_be_pure(path: Path) -> bool:
    return path.name == "plan.py" or path.is_relative_to(DOMAIN)


def find_impurities(source: str) -> tuple[str, ...]:
    """What the source does that a decision must not, in the order of the lines."""
    found = [
        (node.lineno, what)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt | ast.expr)
        for what in _impurities_of(node)
    ]
    return tuple(f"line {line}: {what}" for line, what in sorted(set(found)))


def _impurities_of(node: ast.stmt | ast.expr) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"imports {name.name}" for name in names if _is_impure_module(name.name))
        case ast.ImportFrom(module=str(module)) if _is_impure_module(module):
            yield f"imports {module}"
        case ast.Call(func=function) if _last_name(function) in IMPURE_CALLS:
            yield f"calls {_last_name(function)}()"
        case ast.Attribute(attr=name, value=owner) if name in CLOCKS and _last_name(owner) in CLOCK_OWNERS:
            yield f"refers to the clock {_last_name(owner)}.{name}"
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            if any(generator.is_async for generator in node.generators):
                yield "waits (async comprehension)"
        case _ if isinstance(node, WAITING):
            yield f"waits ({type(node).__name__})"


def _is_impure_module(name: str) -> bool:
    return name.partition(".")[0] in IMPURE_MODULES


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
