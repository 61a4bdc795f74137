"""The API against its own description: every operation, with data that fits it and data that does not.

A tenant of its own gets what is made; whatever reached the stock is removed afterwards. `make test` tries a few
examples of each operation, `make faults` many.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import httpx
import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from gpu_platform.domain import names
from gpu_platform.domain.functions import WORKERS_LIMIT
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import REPLICAS_LIMIT
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient, NotFoundError, ResourcePath
from gpu_platform.kube.paths import GPU_SPECS, OPERATIONS, STOCK_POOLS
from tests.support.api import UNITS, probe
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.functions import FUNCTIONS
from tests.support.storages import STORAGES
from tests.support.tenants import Tenant, tenant
from tests.support.units_and_stock import STOCK, create_unit, stock_of, unit_body, wait_pool_available, wait_unit_phase
from tests.support.waiting import eventually

Case = schemathesis.Case[Any]

FEW, MANY = 10, 40
few_or_many = pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.faults)])
SECONDS_PER_CALL = 20
BUSY_AT_MOST = 3
"""How often the answer may be that Kubernetes is slow just now: true on a busy machine, and not for long."""

REPLICAS_AT_MOST = 1
"""So that the pools and the workers that are made do not fill the cluster."""

CREATES_A_UNIT = {"operationID", "name", "image"}
CREATES_A_STORAGE = {"operationID", "name", "accessor", "retain"}
CREATES_A_FUNCTION = {*CREATES_A_UNIT, "concurrency", "queueLimit", "maxAttempts"}
CREATES_STOCK = {"operationID", "name", "replicas", "replenish"}
"""What is left of a body, beside the spec or the size, where it should be accepted."""

TRUE = {"true", "1", "on", "yes", "t", "y"}
"""What the API takes for true."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
TOO_LARGE = 413
CHECKS_OF_TOO_LARGE = [check for check in CHECKS if check is not negative_data_rejection]
"""A refusal too, which that check does not know: a text may be too long for its field and for the whole body."""

CALLS = (f"{UNITS}/{{name}}/proxy/", f"{STORAGES}/{{name}}/proxy/")
KNOWN = "known"
"""Name of a unit and of a pool that are there."""


@pytest.fixture(scope="module")
async def owner(kube: KubeClient, cluster: RunningCluster) -> AsyncIterator[Tenant]:
    before = {kind: await present(kube, kind) for kind in (OPERATIONS, STOCK_POOLS, GPU_SPECS)}
    async with tenant(kube, cluster.record.platform_url, Role.ADMIN) as made:
        # Of a spec without stock, so that it stays stopped: simulated nodes have no logs.
        await create_unit(kube, unit_body(KNOWN, namespace=made.namespace, running=False, specName="host.1"))
        await wait_unit_phase(kube, KNOWN, "Stopped", made.namespace)
        pool = {"apiVersion": names.API_VERSION, "kind": "StockPool", "metadata": {"name": KNOWN, "namespace": STOCK}}
        await kube.create(STOCK_POOLS.collection(STOCK), {**pool, "spec": {"specName": "g1.1", "replicas": 2}})
        await wait_pool_available(kube, KNOWN, 2)
        yield made
    await clean_up(kube, before)


def scope_of(kind: ResourcePath) -> str | None:
    return STOCK if kind.namespaced else None


async def present(kube: KubeClient, kind: ResourcePath) -> set[str]:
    return {item["metadata"]["name"] for item in (await kube.get(kind.collection(scope_of(kind))))["items"]}


async def clean_up(kube: KubeClient, before: dict[ResourcePath, set[str]]) -> None:
    """Jobs first: one that is still under way would make its pool again."""

    async def jobs_have_ended() -> bool:
        operations = (await kube.get(OPERATIONS.collection(STOCK)))["items"]
        phases = {operation.get("status", {}).get("phase") for operation in operations}
        return phases <= {"Succeeded", "Failed"}

    await eventually(jobs_have_ended)
    for kind in (OPERATIONS, STOCK_POOLS, GPU_SPECS):
        for name in await present(kube, kind) - before[kind]:
            await remove(kube, kind.item(name, scope_of(kind)))
            if kind is STOCK_POOLS:
                await eventually(partial(is_empty, kube, name))


async def remove(kube: KubeClient, path: str) -> None:
    try:
        await kube.delete(path)
    except NotFoundError:
        return


async def is_empty(kube: KubeClient, pool: str) -> bool:
    return not await stock_of(kube, pool)


def operations(document: Json) -> Iterator[Any]:
    """Those that take something away come last."""
    own = without_calls(document)
    schema = schemathesis.openapi.from_dict(without_keys(own))
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(found) == sum(map(len, own["paths"].values()))
    yield from sorted(found, key=lambda operation: bool(operation.method == "delete"))


def without_calls(document: Json) -> Json:
    """What a unit or a file browser answers is its own affair, and no description can say it."""
    own = {path: methods for path, methods in document["paths"].items() if not path.startswith(CALLS)}
    assert len(own) == len(document["paths"]) - len(CALLS)
    return {**document, "paths": own}


def without_keys(document: Json) -> Json:
    """The key is always right here: with a wrong one, nothing behind it would ever be asked."""
    paths = {
        path: {method: {**operation, "security": []} for method, operation in methods.items()}
        for path, methods in document["paths"].items()
    }
    components = {name: part for name, part in document["components"].items() if name != "securitySchemes"}
    return {**document, "paths": paths, "components": components}


def is_stream(case: Case) -> bool:
    given = [(case.query or {}).get(flag) for flag in ("watch", "follow")]
    values = [value for each in given for value in (each if isinstance(each, list) else [each])]
    return any(str(value).lower() in TRUE for value in values)


def tame(case: Case) -> None:
    """A number of units that is allowed, and more than the cluster should bear, becomes a small one. Nobody records
    stacks here, so nobody waits for them."""
    if isinstance(case.body, dict):
        replicas = case.body.get("replicas")
        if isinstance(replicas, int) and REPLICAS_AT_MOST < replicas <= REPLICAS_LIMIT:
            case.body["replicas"] = REPLICAS_AT_MOST
        workers = case.body.get("minWorkers")
        if isinstance(workers, int) and REPLICAS_AT_MOST < workers <= WORKERS_LIMIT:
            case.body["minWorkers"] = REPLICAS_AT_MOST
    if (case.query or {}).get("wait") == "recorded":
        case.query.pop("wait")


def aim(case: Case) -> None:
    """At what is there: names and specs by chance are hardly ever known."""
    if "name" in case.path_parameters:
        case.path_parameters["name"] = KNOWN
    if case.method == "POST" and isinstance(case.body, dict) and "name" not in case.path_parameters:
        by_path = {UNITS: CREATES_A_UNIT, FUNCTIONS: CREATES_A_FUNCTION, STORAGES: CREATES_A_STORAGE}
        kept = by_path.get(case.path, CREATES_STOCK)
        fitting: Json = {"size": "1Gi"} if case.path == STORAGES else {"specName": "g1.1"}
        case.body = {key: value for key, value in case.body.items() if key in kept} | fitting


def call_with(operation: Any, mode: schemathesis.GenerationMode, url: str, key: str, examples: int) -> Counter[int]:
    """Examples of one operation; raises at the first answer that its description does not allow."""
    statuses: Counter[int] = Counter()
    with requests.Session() as session:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {key}"

        @hypothesis.seed(20_260_101)
        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode), is_aimed=st.booleans())
        def check(case: Case, is_aimed: bool) -> None:
            hypothesis.assume(not is_stream(case))
            tame(case)
            if is_aimed and mode is schemathesis.GenerationMode.POSITIVE:
                aim(case)
            answer = case.call(base_url=url, session=session, timeout=SECONDS_PER_CALL)
            # A unit that an earlier example made by chance is on a simulated node, and that one hands out no logs.
            hypothesis.assume(not (case.path.endswith("/logs") and answer.status_code == 503))
            for _ in range(BUSY_AT_MOST):
                if answer.status_code == 503:
                    time.sleep(int(answer.headers["retry-after"][0]))
                    answer = case.call(base_url=url, session=session, timeout=SECONDS_PER_CALL)
            case.validate_response(answer, checks=CHECKS if answer.status_code != TOO_LARGE else CHECKS_OF_TOO_LARGE)
            statuses[answer.status_code] += 1

        check()
    return statuses


def can_be_wrong(operation: Any) -> bool:
    """Whether there is anything in it that could not fit: a name may be any text."""
    return bool(operation.body) or any(operation.query)


async def call_all(
    api: httpx.AsyncClient, owner: Tenant, mode: schemathesis.GenerationMode, examples: int
) -> dict[str, Counter[int]]:
    document = (await api.get("/openapi.json")).json()
    return {
        operation.label: await asyncio.to_thread(call_with, operation, mode, str(api.base_url), owner.key, examples)
        for operation in operations(document)
        if mode is schemathesis.GenerationMode.POSITIVE or can_be_wrong(operation)
    }


@few_or_many
async def test_data_that_fits_the_description_is_answered_as_it_says(
    api: httpx.AsyncClient, owner: Tenant, examples: int, faults: FaultReport
) -> None:
    statuses = await call_all(api, owner, schemathesis.GenerationMode.POSITIVE, examples)
    faults.hit("requests that fit", sum(counts.total() for counts in statuses.values()))
    assert len(statuses) > 25
    assert statuses[f"POST {UNITS}"][201] > 0
    assert statuses[f"POST {STORAGES}"][201] > 0
    assert statuses[f"POST {FUNCTIONS}"][201] > 0
    assert statuses["POST /api/v1/operator/stockpools"][202] > 0
    assert statuses[f"GET {UNITS}/{{name}}"][200] > 0
    assert (await probe(api, "/readyz")).status_code == 200
    faults.held("every answer is as described")


@few_or_many
async def test_data_that_does_not_fit_is_refused(
    api: httpx.AsyncClient, owner: Tenant, examples: int, faults: FaultReport
) -> None:
    statuses = await call_all(api, owner, schemathesis.GenerationMode.NEGATIVE, examples)
    faults.hit("requests that do not fit", sum(counts.total() for counts in statuses.values()))
    assert statuses[f"POST {UNITS}"][400] > examples / 2
    assert statuses[f"PUT {UNITS}/{{name}}"][400] > examples / 2
    assert statuses[f"POST {STORAGES}"][400] > examples / 2
    assert statuses[f"POST {FUNCTIONS}"][400] > examples / 2
    assert statuses[f"GET {UNITS}"][400] > examples / 2
    faults.held("every refusal is as described")


async def test_an_answer_that_breaks_the_description_is_noticed(api: httpx.AsyncClient, owner: Tenant) -> None:
    """The check of the checks: a description that promises more than is kept."""
    document = (await api.get("/openapi.json")).json()
    for either in ("HealthView", "LivenessView"):
        document["components"]["schemas"][either]["required"] = ["neverThere"]
    [health] = [operation for operation in operations(document) if operation.path == "/api/v1/health"]
    with pytest.raises(BaseExceptionGroup, match="schema"):
        call_with(health, schemathesis.GenerationMode.POSITIVE, str(api.base_url), owner.key, FEW)
