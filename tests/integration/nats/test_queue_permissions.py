"""What the users of a real nats-server may do, and above all what they may not."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from gpu_platform.nats.connection import open_client
from gpu_platform.nats.errors import OutdatedError
from gpu_platform.nats.permissions import WORKERS_JETSTREAM, sidecar_inbox_prefix
from gpu_platform.nats.streams import ensure_consumer, ensure_streams, remove_consumer
from gpu_platform.nats.subjects import (
    BODIES,
    LOGS,
    QUEUE,
    RECORDS,
    body_subject,
    changed_subject,
    consumer_name,
    log_subject,
    queue_subject,
    record_subject,
    wake_subject,
)
from gpu_platform.nats.worker_logs import WorkerLog, ensure_log_stream, list_logs, remove_logs, write_log
from tests.support.nats_server import (
    ANSWER_SECONDS,
    OURS,
    Users,
    answer_to,
    are_refused,
    hears,
    is_refused,
    open_users,
    reach_server,
    subjects_of,
)

APIS = ("$JS.API", WORKERS_JETSTREAM)
"""JetStream's, and as the workers' account knows it."""

RECORD = ("acme", "call", "resize")
OTHERS = [("acme", "other"), ("umbrella", "resize"), ("umbrella", "other")]
FUNCTIONS = [OURS, *OTHERS]


@pytest.fixture(scope="module")
async def users(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Users]:
    async with open_users(tmp_path_factory.mktemp("queue")) as users:
        yield users


@pytest.fixture
async def ground(users: Users) -> Users:
    """Each function has one call, with a record, a place in the queue and a body."""
    js = users.functions.jetstream()
    await ensure_streams(js)
    for tenant, function in FUNCTIONS:
        await ensure_consumer(js, tenant, function, timedelta(seconds=30))
        for subject in subjects_of(tenant, function):
            await users.api.jetstream().publish(subject, f"{tenant}/{function}".encode())
    return users


async def test_nothing_is_missed_from_the_moment_at_which_one_begins_to_listen(ground: Users) -> None:
    """Else silence would prove nothing. A message in thirty was missed, so it is asked often."""
    changed = changed_subject(*OURS, "call")
    for _ in range(200):
        assert await hears(ground.api, changed_subject(*OURS, "*"), ground.sidecar, changed)


async def test_a_sidecar_can_do_its_work(ground: Users) -> None:
    """Take a call, read its record and its body, write the end, say so, and take it from the queue."""
    js = ground.sidecar.jetstream(prefix=WORKERS_JETSTREAM)
    pull = await js.pull_subscribe_bind(durable=consumer_name(*OURS), stream=QUEUE)
    [message] = await pull.fetch(1, timeout=ANSWER_SECONDS)
    assert message.subject == queue_subject(*OURS, "call")
    record = record_subject("acme", "call", "resize")
    assert await answer_to(ground.sidecar, f"{WORKERS_JETSTREAM}.DIRECT.GET.{RECORDS}.{record}") == b"acme/resize"
    body = body_subject(*OURS, "call", "request", 0)
    assert await answer_to(ground.sidecar, f"{WORKERS_JETSTREAM}.DIRECT.GET.{BODIES}.{body}") == b"acme/resize"
    await js.publish(body_subject(*OURS, "call", "result", 0), b"result")
    await message.in_progress()
    await js.publish(record, b"ended", headers={"Nats-TTL": "60s"})
    await message.ack_sync(timeout=ANSWER_SECONDS)
    assert (await js.consumer_info(QUEUE, consumer_name(*OURS))).num_ack_pending == 0
    assert await hears(ground.api, changed_subject(*OURS, "*"), ground.sidecar, changed_subject(*OURS, "call"))


@pytest.mark.parametrize(("tenant", "function"), OTHERS)
async def test_a_sidecar_reads_nothing_of_others(ground: Users, tenant: str, function: str) -> None:
    record, _, *bodies = subjects_of(tenant, function)
    consumer = f"{QUEUE}.{consumer_name(tenant, function)}"
    asked: list[tuple[str, Any]] = []
    for api in APIS:
        asked.append((f"{api}.CONSUMER.MSG.NEXT.{consumer}", {"batch": 1}))
        asked.append((f"{api}.CONSUMER.INFO.{consumer}", None))
        for stream, subjects in ((RECORDS, [record]), (BODIES, bodies)):
            for subject in subjects:
                asked.append((f"{api}.DIRECT.GET.{stream}.{subject}", None))
                for request in ({"last_by_subj": subject}, {"seq": 1}, {"multi_last": [">"]}):
                    asked.append((f"{api}.DIRECT.GET.{stream}", request))
                    asked.append((f"{api}.STREAM.MSG.GET.{stream}", request))
    assert await are_refused(ground.sidecar, asked)


@pytest.mark.parametrize("middle", ["*", ">", "call.>"])
async def test_a_sidecar_reads_nothing_of_others_by_a_wildcard(ground: Users, middle: str) -> None:
    """A subject that is published to is taken as it is written: an asterisk is one of the things that it may say."""
    for subject in (record_subject("acme", middle, "resize"), body_subject(*OURS, middle, "request", middle)):
        stream = RECORDS if subject.startswith("$KV") else BODIES
        answer = await answer_to(ground.sidecar, f"{WORKERS_JETSTREAM}.DIRECT.GET.{stream}.{subject}")
        assert answer in (b"", b"acme/resize")


@pytest.mark.parametrize(
    "request_",
    [
        {"seq": 2},
        {"seq": 1, "next_by_subj": ">"},
        {"next_by_subj": "$KV.invocations.umbrella.>"},
        {"last_by_subj": "$KV.invocations.umbrella.call.resize"},
        {"multi_last": ["$KV.invocations.>"]},
        {"batch": 100, "seq": 1},
        {"start_time": "2020-01-01T00:00:00Z"},
    ],
    ids=lambda request: "+".join(request),
)
async def test_a_sidecar_reads_nothing_of_others_beside_a_subject_of_its_own(
    ground: Users, request_: dict[str, Any]
) -> None:
    """The two ways to ask can be mixed; the subject that it may ask for is the one that counts."""
    inbox = ground.sidecar.new_inbox()
    answers = await ground.sidecar.subscribe(inbox)
    own = record_subject("acme", "call", "resize")
    asked = f"{WORKERS_JETSTREAM}.DIRECT.GET.{RECORDS}.{own}"
    await ground.sidecar.publish(asked, json.dumps(request_).encode(), reply=inbox)
    assert (await answers.next_msg(timeout=ANSWER_SECONDS)).data in (b"", b"acme/resize")
    # Whatever else there is has come when the next question is answered.
    assert await answer_to(ground.sidecar, asked) == b"acme/resize"
    while answers.pending_msgs:
        assert (await answers.next_msg(timeout=ANSWER_SECONDS)).data in (b"", b"acme/resize")
    await answers.unsubscribe()


@pytest.mark.parametrize(("tenant", "function"), OTHERS)
async def test_a_sidecar_writes_nothing_of_others(ground: Users, tenant: str, function: str) -> None:
    assert await are_refused(ground.sidecar, [(subject, None) for subject in subjects_of(tenant, function)])
    js = ground.functions.jetstream()
    assert (
        await js.get_last_msg(RECORDS, record_subject(tenant, "call", function))
    ).data == f"{tenant}/{function}".encode()


async def test_a_sidecar_queues_nothing_and_changes_no_request(ground: Users) -> None:
    subjects = (
        queue_subject(*OURS, "more"),
        body_subject(*OURS, "call", "request", 0),
        record_subject("acme", "call", "resize.more"),
    )
    assert await are_refused(ground.sidecar, [(subject, None) for subject in subjects])


@pytest.mark.parametrize("scope", ["all", "sub"])
async def test_a_sidecar_cannot_sweep_others_away_with_what_it_writes(ground: Users, scope: str) -> None:
    for subject in (record_subject("acme", "call", "resize"), body_subject(*OURS, "call", "result", 0)):
        await answer_to(ground.sidecar, subject, headers={"Nats-Rollup": scope})
    js = ground.functions.jetstream()
    for tenant, function in OTHERS:
        assert (await js.get_last_msg(RECORDS, record_subject(tenant, "call", function))).data
        assert (await js.get_last_msg(BODIES, body_subject(tenant, function, "call", "request", 0))).data


async def test_a_sidecar_acknowledges_nothing_of_others(ground: Users) -> None:
    js = ground.person.jetstream()
    pull = await js.pull_subscribe_bind(durable=consumer_name("acme", "other"), stream=QUEUE)
    [message] = await pull.fetch(1, timeout=ANSWER_SECONDS)
    assert await is_refused(ground.sidecar, message.reply)
    assert (await js.consumer_info(QUEUE, consumer_name("acme", "other"))).num_ack_pending > 0
    await message.nak()


@pytest.mark.parametrize(
    "subject",
    [
        "_INBOX.>",
        "_INBOX_api.>",
        "_INBOX_functions.>",
        "_INBOX_acme_other.>",
        "_INBOX_umbrella_resize.>",
        "serverless.changed.>",
        "serverless.changed.acme.resize.*",
        "serverless.invoke.>",
        "$KV.invocations.>",
        "$JS.>",
        "$SYS.>",
        ">",
    ],
)
async def test_a_sidecar_listens_to_nobody_else(ground: Users, subject: str) -> None:
    said_on = subject.replace(">", "word").replace("*", "word")
    assert not await hears(ground.sidecar, subject, ground.person, said_on)
    assert not await hears(ground.sidecar, subject, ground.anybody, said_on)


async def test_a_sidecar_gives_no_hints_about_others(ground: Users) -> None:
    said_on = changed_subject("acme", "other", "call")
    assert not await hears(ground.api, said_on, ground.sidecar, said_on)
    woken = wake_subject(*OURS)
    assert not await hears(ground.functions, woken, ground.sidecar, woken)


MAKING = [
    (f"$JS.API.STREAM.CREATE.{name}", StreamConfig(name=name, subjects=["mine.>"]).as_dict())
    for name in ("MINE", QUEUE)
] + [
    (f"$JS.API.STREAM.UPDATE.{QUEUE}", StreamConfig(name=QUEUE, subjects=["mine.>"]).as_dict()),
    (f"$JS.API.STREAM.DELETE.{RECORDS}", None),
    (f"$JS.API.STREAM.SNAPSHOT.{RECORDS}", {"deliver_subject": "mine"}),
    (f"$JS.API.STREAM.PURGE.{RECORDS}", None),
    *(
        (f"$JS.API.CONSUMER.{verb}", {"stream_name": stream, "config": ConsumerConfig(durable_name="mine").as_dict()})
        for stream in (QUEUE, RECORDS, BODIES)
        for verb in (
            f"CREATE.{stream}",
            f"CREATE.{stream}.mine",
            f"CREATE.{stream}.mine.>",
            f"DURABLE.CREATE.{stream}.mine",
        )
    ),
    (f"$JS.API.CONSUMER.DELETE.{QUEUE}.{consumer_name(*OURS)}", None),
    (f"$JS.API.CONSUMER.PAUSE.{QUEUE}.{consumer_name(*OURS)}", {"pause_until": "2090-01-01T00:00:00Z"}),
    (f"$JS.API.CONSUMER.RESET.{QUEUE}.{consumer_name(*OURS)}", None),
    (f"$JS.API.CONSUMER.UNPIN.{QUEUE}.{consumer_name(*OURS)}", None),
]


@pytest.mark.parametrize(("subject", "payload"), MAKING)
async def test_neither_a_sidecar_nor_the_api_makes_changes_or_deletes_streams_and_consumers(
    ground: Users, subject: str, payload: Any
) -> None:
    in_workers_account = subject.replace(*APIS)
    refusals = await asyncio.gather(
        is_refused(ground.api, subject, payload),
        is_refused(ground.sidecar, subject, payload),
        is_refused(ground.sidecar, in_workers_account, payload),
        is_refused(ground.anybody, in_workers_account, payload),
    )
    assert all(refusals)


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        f"$JS.API.STREAM.INFO.{QUEUE}",
        f"$JS.API.CONSUMER.NAMES.{QUEUE}",
        f"$JS.API.CONSUMER.LIST.{QUEUE}",
        f"$JS.API.STREAM.PURGE.{QUEUE}",
        f"$JS.API.STREAM.PURGE.{BODIES}",
        f"$JS.API.STREAM.MSG.DELETE.{QUEUE}",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.USER.INFO.OTHER",
    ],
)
async def test_a_sidecar_learns_nothing_about_the_whole(ground: Users, subject: str) -> None:
    asked = [(subject.replace("$JS.API", api), None) for api in APIS]
    assert await are_refused(ground.sidecar, asked)
    assert await are_refused(ground.anybody, asked[1:])


async def test_the_api_reads_and_writes_every_call(ground: Users) -> None:
    js = ground.api.jetstream()
    for tenant, function in FUNCTIONS:
        record, queued, body, _ = subjects_of(tenant, function)
        assert (await js.get_last_msg(RECORDS, record)).data == f"{tenant}/{function}".encode()
        assert (await js.get_last_msg(RECORDS, record, direct=True)).data
        assert (await js.get_last_msg(BODIES, body, direct=True)).data
        assert (await js.get_last_msg(QUEUE, queued)).seq
        assert (await js.consumer_info(QUEUE, consumer_name(tenant, function))).num_pending > 0
    assert await hears(ground.api, changed_subject("acme", "*", "*"), ground.api, changed_subject(*OURS, "call"))


async def test_the_api_empties_a_functions_queue_and_no_other(ground: Users) -> None:
    js = ground.api.jetstream()
    await js.purge_stream(QUEUE, subject=queue_subject(*OURS, "*"))
    assert (await js.consumer_info(QUEUE, consumer_name(*OURS))).num_pending == 0
    assert (await js.consumer_info(QUEUE, consumer_name("acme", "other"))).num_pending > 0
    assert await is_refused(ground.api, f"$JS.API.STREAM.PURGE.{RECORDS}")


async def test_the_api_deletes_the_bodies_of_a_function_and_no_others(ground: Users) -> None:
    js = ground.api.jetstream()
    await js.purge_stream(BODIES, subject=body_subject(*OURS, "*", "*", "*"))
    for tenant, function in OTHERS:
        _, _, body, _ = subjects_of(tenant, function)
        assert (await js.get_last_msg(BODIES, body, direct=True)).data
    with pytest.raises(NotFoundError):
        await js.get_last_msg(BODIES, subjects_of(*OURS)[2], direct=True)


async def test_the_api_wakes_the_reconciler_and_takes_no_calls(ground: Users) -> None:
    woken = wake_subject(*OURS)
    assert await hears(ground.functions, "serverless.wake.>", ground.api, woken)
    assert await is_refused(ground.api, f"$JS.API.CONSUMER.MSG.NEXT.{QUEUE}.{consumer_name(*OURS)}", {"batch": 1})


async def test_logs_are_written_by_the_reconciler_read_by_the_api_and_no_business_of_a_sidecar(ground: Users) -> None:
    """Also not those of its own function: what a worker wrote is not for it to change."""
    js, entry = ground.functions.jetstream(), WorkerLog("resize-worker-0", ("2026-11-18T12:00:00.000000Z line",))
    await ensure_log_stream(js, 1)
    await write_log(js, *OURS, entry)
    [found] = await list_logs(ground.api.jetstream(), *OURS)
    assert (found.worker, found.lines) == (entry.worker, entry.lines)
    with pytest.raises(OutdatedError):
        await write_log(js, *OURS, entry)

    subject = log_subject(*OURS, entry.worker)
    assert await is_refused(ground.api, subject)
    assert await is_refused(ground.api, f"$JS.API.STREAM.PURGE.{LOGS}")
    asked: list[tuple[str, Any]] = [(subject, None)]
    for api in APIS:
        asked.append((f"{api}.DIRECT.GET.{LOGS}.{subject}", None))
        asked.append((f"{api}.DIRECT.GET.{LOGS}", {"last_by_subj": subject}))
        asked.append((f"{api}.STREAM.PURGE.{LOGS}", None))
    assert await are_refused(ground.sidecar, asked)
    await remove_logs(js, *OURS)
    assert await list_logs(js, *OURS) == ()


async def test_the_functions_controller_makes_and_removes_consumers(ground: Users) -> None:
    js = ground.functions.jetstream()
    await ensure_consumer(js, "acme", "short-lived", timedelta(seconds=30))
    await remove_consumer(js, "acme", "short-lived")
    assert not await is_refused(ground.functions, f"$JS.API.CONSUMER.NAMES.{QUEUE}", {})


async def test_a_sidecar_of_a_prefix_cannot_be_taken_for_another_one(ground: Users) -> None:
    """Hyphens are in names, underscores in none: `a-b` of `c` is nobody else."""
    access = ground.server.sidecar_access("acme", "resize-2")
    async with open_client(access, "other", inbox_prefix=sidecar_inbox_prefix("acme", "resize-2")) as other:
        assert await is_refused(other, f"{WORKERS_JETSTREAM}.CONSUMER.INFO.{QUEUE}.{consumer_name(*OURS)}")
        record = record_subject("acme", "call", "resize")
        assert await is_refused(other, f"{WORKERS_JETSTREAM}.DIRECT.GET.{RECORDS}.{record}")


@pytest.mark.parametrize(
    ("asked", "payload"),
    [
        (f"{WORKERS_JETSTREAM}.DIRECT.GET.{RECORDS}.{record_subject('acme', 'call', 'resize')}", b""),
        (f"{WORKERS_JETSTREAM}.DIRECT.GET.{BODIES}.{body_subject('acme', 'resize', 'call', 'result', 0)}", b""),
        (f"{WORKERS_JETSTREAM}.CONSUMER.MSG.NEXT.{QUEUE}.acme_resize", b'{"batch": 1}'),
        (f"{WORKERS_JETSTREAM}.CONSUMER.INFO.{QUEUE}.acme_resize", b""),
        (record_subject("acme", "call", "resize"), b"mine"),
    ],
)
async def test_a_sidecar_writes_nothing_of_others_by_having_answers_sent_there(
    ground: Users, asked: str, payload: bytes
) -> None:
    """A server sends its answer wherever it was asked to; in the workers' account no stream is there to take it."""
    for tenant, function in OTHERS:
        for subject in subjects_of(tenant, function):
            await ground.sidecar.publish(asked, payload, reply=subject)
    await reach_server(ground.sidecar)
    # The server has worked on all of these once it has answered what was asked after them.
    assert await answer_to(ground.sidecar, f"{WORKERS_JETSTREAM}.CONSUMER.INFO.{QUEUE}.{consumer_name(*OURS)}")
    assert await answer_to(ground.sidecar, f"{WORKERS_JETSTREAM}.DIRECT.GET.{RECORDS}.{record_subject(*RECORD)}")
    js = ground.functions.jetstream()
    for tenant, function in OTHERS:
        for stream, subject in zip((RECORDS, QUEUE, BODIES, BODIES), subjects_of(tenant, function), strict=True):
            assert (await js.get_last_msg(stream, subject)).data == f"{tenant}/{function}".encode()
