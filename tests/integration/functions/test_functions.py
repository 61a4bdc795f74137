"""Functions and their workers on the host node: real processes, real NATS, a real API server."""

import secrets

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.invocations import InvocationState
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_UNITS, PODS, SECRETS
from gpu_platform.nats.streams import list_consumers
from tests.support.functions import (
    COMMAND,
    SPEC,
    Calls,
    change_function,
    delete_function,
    function_object,
    pod_of,
    wait_function_reason,
    workers_of,
)
from tests.support.units_and_stock import (
    INSTANCES,
    claim,
    create_unit,
    delete_unit,
    find,
    get_unit,
    ready_condition,
    stock_pool,
    unit_body,
    wait_pool_available,
    wait_unit_phase,
)
from tests.support.waiting import eventually

GRACE_SECONDS = 3_600
"""Longer than any test waits: a process that is gone sooner has ended by itself, and was not killed."""


@pytest.fixture
def call_id() -> str:
    return f"call-{secrets.token_hex(4)}"


async def test_a_call_of_a_function_is_answered_by_a_worker_from_stock(
    kube: KubeClient, calls: Calls, function: str, call_id: str
) -> None:
    async with stock_pool(kube, "fn-one", 1, specName=SPEC), function_object(kube, function, minWorkers=1):
        await calls.send(function, call_id)
        call = await calls.ends(call_id)

        assert (call.state, call.worker) == (InvocationState.SUCCEEDED, f"{function}-worker-0")
        assert call.result is not None
        assert call.result.body == {"words": 3, "attempt": 1}
        shown = await wait_function_reason(kube, function, "FunctionReady", workers=1, readyWorkers=1)
        assert shown["status"]["phase"] == "Ready"
        [worker] = await workers_of(kube, function)
        assert worker["metadata"]["annotations"][names.ANNOTATION_SOURCE_STOCK_NAME].startswith("fn-one-")
        assert names.ANNOTATION_ACCEPTED_SPEC not in worker["metadata"]["annotations"]


async def test_only_the_sidecar_has_the_credentials(kube: KubeClient, function: str) -> None:
    async with stock_pool(kube, "fn-secret", 1, specName=SPEC), function_object(kube, function, minWorkers=1):
        await wait_function_reason(kube, function, "FunctionReady")
        pod = await pod_of(kube, f"{function}-worker-0")

        [main], [sidecar] = pod["spec"]["containers"], pod["spec"]["initContainers"]
        [secret] = [volume for volume in pod["spec"]["volumes"] if "secret" in volume]
        assert secret["secret"]["secretName"] == names.function_secret(function)
        assert secret["name"] in [mount["name"] for mount in sidecar["volumeMounts"]]
        assert secret["name"] not in [mount["name"] for mount in main["volumeMounts"]]
        assert not any("NATS" in variable["name"] for variable in main["env"])


async def test_there_are_as_many_workers_as_are_wanted(
    kube: KubeClient, calls: Calls, function: str, call_id: str
) -> None:
    async with stock_pool(kube, "fn-scale", 2, specName=SPEC), function_object(kube, function, minWorkers=2):
        await wait_function_reason(kube, function, "FunctionReady", workers=2, readyWorkers=2)
        await change_function(kube, function, minWorkers=1, idleTimeoutSeconds=1)
        await wait_function_reason(kube, function, "FunctionReady", workers=1)

        async def is_the_first_left() -> bool:
            return [unit["metadata"]["name"] for unit in await workers_of(kube, function)] == [f"{function}-worker-0"]

        await eventually(is_the_first_left)
        # Also by the one that goes, if it had asked for a call already.
        await calls.send(function, call_id)
        assert (await calls.ends(call_id)).state is InvocationState.SUCCEEDED


async def test_with_a_function_goes_all_that_was_made_for_it(kube: KubeClient, calls: Calls, function: str) -> None:
    async with stock_pool(kube, "fn-gone", 1, specName=SPEC), function_object(kube, function, minWorkers=1):
        await wait_function_reason(kube, function, "FunctionReady")
        assert ("default", function) in await list_consumers(calls.js)
        assert await find(kube, SECRETS.item(names.function_secret(function), INSTANCES)) is not None

        await delete_function(kube, function)

        async def is_all_gone() -> bool:
            secret = await find(kube, SECRETS.item(names.function_secret(function), INSTANCES))
            consumers = await list_consumers(calls.js)
            return not (secret or await workers_of(kube, function) or ("default", function) in consumers)

        await eventually(is_all_gone)
        await wait_pool_available(kube, "fn-gone", 1)


async def test_a_function_without_stock_says_so_and_gets_its_worker_when_there_is_some(
    kube: KubeClient, function: str
) -> None:
    async with function_object(kube, function, minWorkers=1):
        shown = await wait_function_reason(kube, function, "NoStock", workers=0)
        assert f"no free stock of {SPEC}" in ready_condition(shown)["message"]
        async with stock_pool(kube, "fn-late", 1, specName=SPEC):
            await wait_function_reason(kube, function, "FunctionReady", readyWorkers=1)
            await delete_function(kube, function)


async def test_a_changed_function_changes_its_workers_in_place(
    kube: KubeClient, calls: Calls, function: str, call_id: str
) -> None:
    async with stock_pool(kube, "fn-change", 1, specName=SPEC), function_object(kube, function, minWorkers=1):
        await wait_function_reason(kube, function, "FunctionReady", readyWorkers=1)
        [before] = await workers_of(kube, function)
        await change_function(kube, function, image="example/words:2", concurrency=2)

        async def is_changed() -> bool:
            [after] = await workers_of(kube, function)
            return bool(after["spec"]["image"] == "example/words:2" and after["metadata"]["uid"] == uid)

        uid = before["metadata"]["uid"]
        await eventually(is_changed)
        await calls.send(function, call_id)
        assert (await calls.ends(call_id)).state is InvocationState.SUCCEEDED


async def test_a_unit_that_takes_calls_joins_and_its_function_is_made_after_it(
    kube: KubeClient, calls: Calls, function: str, call_id: str
) -> None:
    async with stock_pool(kube, "fn-join", 1, specName=SPEC):
        name = f"{function}-unit"
        stock = await claim(kube, "fn-join", name, spec=SPEC)
        block = {"requestID": function, "minAvailableCount": 1}
        body = unit_body(name, stock=stock, specName=SPEC, template={"command": COMMAND}, serverless=block)
        await create_unit(kube, body)
        try:
            # It is one of the workers that are wanted: no other is made.
            made = await wait_function_reason(kube, function, "FunctionReady", workers=1, readyWorkers=1)
            await calls.send(function, call_id)
            call = await calls.ends(call_id)
            assert (call.state, call.worker) == (InvocationState.SUCCEEDED, name)
            assert made["spec"]["image"] == "example/train"
            assert await workers_of(kube, function) == []
        finally:
            await delete_unit(kube, name)
            await delete_function(kube, function)


async def test_a_worker_that_is_deleted_finishes_its_call_first(
    kube: KubeClient, calls: Calls, function: str, call_id: str
) -> None:
    async with (
        stock_pool(kube, "fn-drain", 1, specName=SPEC),
        # Long, so that a busy machine does not take a slow worker for a dead one.
        function_object(kube, function, minWorkers=1, ackWaitSeconds=60),
    ):
        await wait_function_reason(kube, function, "FunctionReady", readyWorkers=1)
        await calls.send(function, call_id, delay=4)
        await calls.begins(call_id)

        await kube.delete(GPU_UNITS.item(f"{function}-worker-0", INSTANCES))

        call = await calls.ends(call_id)
        assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)
        await wait_function_reason(kube, function, "FunctionReady", readyWorkers=1)


async def test_a_worker_with_nothing_to_do_ends_by_itself_when_it_is_deleted(
    kube: KubeClient, calls: Calls, function: str, call_id: str
) -> None:
    async with stock_pool(kube, "fn-idle", 1, specName=SPEC), function_object(kube, function, minWorkers=1):
        await wait_function_reason(kube, function, "FunctionReady", readyWorkers=1)
        pod = PODS.item((await pod_of(kube, f"{function}-worker-0"))["metadata"]["name"], INSTANCES)
        # It has just asked for the next one.
        await calls.send(function, call_id)
        await calls.ends(call_id)

        await kube.delete(pod, {"gracePeriodSeconds": GRACE_SECONDS})

        async def is_gone() -> bool:
            return await find(kube, pod) is None

        await eventually(is_gone)


async def test_a_worker_whose_process_dies_is_started_again_and_its_call_is_run_again(
    kube: KubeClient, calls: Calls, function: str, call_id: str
) -> None:
    async with stock_pool(kube, "fn-crash", 1, specName=SPEC), function_object(kube, function, minWorkers=1):
        await wait_function_reason(kube, function, "FunctionReady", readyWorkers=1)
        await calls.send(function, call_id, crash=1)

        call = await calls.ends(call_id)
        assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 2)


async def test_a_worker_that_is_stopped_by_hand_is_replaced(kube: KubeClient, function: str) -> None:
    async with stock_pool(kube, "fn-stop", 2, specName=SPEC), function_object(kube, function, minWorkers=1):
        await wait_function_reason(kube, function, "FunctionReady", readyWorkers=1)
        path = GPU_UNITS.item(f"{function}-worker-0", INSTANCES)
        before = await kube.get(path)
        await kube.patch(path, {"spec": {"running": False}})

        async def is_another() -> bool:
            unit = await find(kube, path)
            return unit is not None and unit["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(is_another)
        await wait_unit_phase(kube, f"{function}-worker-0", "Ready")


async def test_a_function_of_an_unknown_size_says_which_field_to_mend(kube: KubeClient, function: str) -> None:
    async with function_object(kube, function, minWorkers=1, specName="nothing.1"):
        shown = await wait_function_reason(kube, function, "InvalidSpec")
        assert "spec.specName" in ready_condition(shown)["message"]
        assert await find(kube, GPU_FUNCTIONS.item(function, INSTANCES)) is not None


async def test_a_unit_with_the_sidecars_port_cannot_take_calls(kube: KubeClient, function: str) -> None:
    name = f"{function}-unit"
    template = {"command": COMMAND, "ports": [{"name": "http", "port": 8091}]}
    await create_unit(kube, unit_body(name, specName=SPEC, template=template, serverless={"requestID": function}))
    try:
        await wait_unit_phase(kube, name, "Failed")
        condition = ready_condition(await get_unit(kube, name))
        assert condition["reason"] == "ServerlessConfigInvalid"
        assert "8091" in condition["message"]
    finally:
        await delete_unit(kube, name)
        await delete_function(kube, function)
