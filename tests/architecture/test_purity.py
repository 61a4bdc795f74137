"""Decisions are pure. See the module `purity` for the rule and its reason."""

from pathlib import Path

import pytest

from tests.architecture.purity import find_impurities, must_be_pure
from tests.architecture.repository import ROOT, list_python_files


def test_every_decision_is_pure() -> None:
    impure = {
        str(path): impurities
        for path in list_python_files()
        if must_be_pure(path) and (impurities := find_impurities((ROOT / path).read_text()))
    }

    assert impure == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("reconciler/units/plan.py", True),
        ("gpu_platform/devcluster/plan.py", True),
        ("gpu_platform/domain/names.py", True),
        ("gpu_platform/domain/stock/levels.py", True),
        ("gpu_platform/kube/client.py", False),
        ("reconciler/units/apply.py", False),
        ("reconciler/explain_plan.py", False),
    ],
)
def test_the_rule_is_for_plans_and_the_domain(path: str, expected: bool) -> None:
    assert must_be_pure(Path(path)) is expected


def test_a_decision_on_its_arguments_is_pure() -> None:
    source = """
from datetime import datetime, timedelta

def plan_expiry(started_at: datetime, now: datetime) -> str:
    return "expire" if now - started_at > timedelta(minutes=5) else "wait"

def plan_all(world: World) -> list[str]:
    return [plan_expiry(unit.started_at, world.now) for unit in world.units]
"""

    assert find_impurities(source) == ()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("async def plan(): ...", "waits (AsyncFunctionDef)"),
        ("await observe()", "waits (Await)"),
        ("async for unit in units: ...", "waits (AsyncFor)"),
        ("async with lock: ...", "waits (AsyncWith)"),
        ("[unit async for unit in units]", "waits (async comprehension)"),
        ("import asyncio", "imports asyncio"),
        ("import time", "imports time"),
        ("from time import monotonic as tick", "imports time"),
        ("import random", "imports random"),
        ("from secrets import token_hex", "imports secrets"),
        ("import os", "imports os"),
        ("import json, os.path", "imports os.path"),
        ("from os import environ", "imports os"),
        ("import logging", "imports logging"),
        ("from logging.handlers import QueueHandler", "imports logging.handlers"),
        ("import structlog", "imports structlog"),
        ("import subprocess", "imports subprocess"),
        ("import socket", "imports socket"),
        ("import threading", "imports threading"),
        ("datetime.datetime.now(UTC)", "calls now()"),
        ("now()", "calls now()"),
        ("datetime.utcnow()", "calls utcnow()"),
        ("date.today()", "calls today()"),
        ("clock.time()", "calls time()"),
        ("clock.monotonic()", "calls monotonic()"),
        ("perf_counter()", "calls perf_counter()"),
        ("uuid.uuid1()", "calls uuid1()"),
        ("uuid.uuid4()", "calls uuid4()"),
        ("open('quota.json')", "calls open()"),
        ("print('planned')", "calls print()"),
        ("input()", "calls input()"),
        ("field(default_factory=datetime.now)", "refers to the clock datetime.now"),
        ("field(default_factory=datetime.utcnow)", "refers to the clock datetime.utcnow"),
        ("field(default_factory=datetime.date.today)", "refers to the clock date.today"),
        ("def plan():\n    def choose():\n        import random", "imports random"),
    ],
)
def test_the_rule_sees(source: str, what: str) -> None:
    assert any(what in impurity for impurity in find_impurities(source))


def test_the_rule_names_the_lines_in_order() -> None:
    source = "import json\nimport random\n\nasync def plan():\n    return random.random()\n"

    assert find_impurities(source) == ("line 2: imports random", "line 4: waits (AsyncFunctionDef)")
