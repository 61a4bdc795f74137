"""The platform's REST API as a measurement calls it: by a client that costs little itself."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import UnitRequest
from tests.support.api import UNITS

CREATED = 201


class Rest:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def time_post(self, request: UnitRequest) -> float:
        """From sending the request until its answer is read."""
        body = {"operationID": f"op-{request.name}", **request.to_json()}
        started_at = time.perf_counter()
        await self.post(UNITS, body, CREATED)
        return time.perf_counter() - started_at

    async def post(self, path: str, body: Json, status: int) -> None:
        async with self._session.post(path, json=body) as response:
            text = await response.text()
        if response.status != status:
            raise RuntimeError(f"POST {path} was answered with {response.status}: {text}")

    async def time_get(self, path: str) -> float:
        started_at = time.perf_counter()
        await self.get(path)
        return time.perf_counter() - started_at

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        async with self._session.get(path, params=params) as response:
            body = await response.json()
        if not response.ok:
            raise RuntimeError(f"GET {path} was answered with {response.status}: {body}")
        return body["data"]


@asynccontextmanager
async def open_rest(record: ClusterRecord) -> AsyncIterator[Rest]:
    headers = {"Authorization": f"Bearer {record.api_key}"}
    async with aiohttp.ClientSession(record.platform_url, headers=headers, trust_env=False) as session:
        yield Rest(session)
