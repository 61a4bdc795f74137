"""How fast callers may ask and write, in this process: buckets of tokens per key, per tenant, and per source of failed
logins."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

MOST_BUCKETS = 10_000
"""What is remembered at most: of more keys, tenants or sources, the ones that asked longest ago are forgotten."""

IPV6_SOURCE_BITS = 64
"""One subscriber usually has this much of an address, and 2^64 addresses below it."""


@dataclass(frozen=True)
class Rate:
    per_second: float
    burst: int
    """As many at once, after a pause."""

    @property
    def window_seconds(self) -> int:
        """The time in which an empty bucket is full again."""
        return math.ceil(self.burst / self.per_second)


@dataclass(frozen=True)
class Allowance:
    """What one bucket still allows."""

    policy: str
    rate: Rate
    tokens: float
    """Less than 0 where more was charged than there was."""

    @property
    def remaining(self) -> int:
        return max(0, math.floor(self.tokens))

    @property
    def retry_seconds(self) -> int:
        """When the next request may pass: 0 for at once, else whole seconds."""
        return math.ceil(max(0.0, 1 - self.tokens) / self.rate.per_second)

    @property
    def reset_seconds(self) -> int:
        """When all of the burst is there again, if no request comes."""
        return math.ceil((self.rate.burst - self.tokens) / self.rate.per_second)


@dataclass
class _Bucket:
    tokens: float
    at: float


class Buckets:
    """A bucket of tokens for each name; `now` is in seconds of a clock that never goes back."""

    def __init__(self, policy: str, most: int = MOST_BUCKETS) -> None:
        self._policy = policy
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def look(self, name: str, rate: Rate, now: float) -> Allowance:
        bucket = self._buckets.get(name)
        tokens = float(rate.burst)
        if bucket is not None:
            tokens = min(tokens, bucket.tokens + (now - bucket.at) * rate.per_second)
        return Allowance(self._policy, rate, tokens)

    def take(self, name: str, rate: Rate, now: float, cost: int = 1) -> Allowance:
        """Takes the tokens that a request costs, and returns what is left; of an empty bucket, nothing is taken."""
        seen = self.look(name, rate, now)
        left = seen.tokens - cost if seen.tokens >= 1 else seen.tokens
        self._buckets[name] = _Bucket(left, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return Allowance(self._policy, rate, left)

    def charge(self, name: str, cost: int) -> None:
        """Takes what a request of before has turned out to cost; the bucket may be in debt afterwards."""
        if (bucket := self._buckets.get(name)) is not None:
            bucket.tokens -= cost


@dataclass(frozen=True)
class Verdict:
    is_let_in: bool
    allowances: tuple[Allowance, ...]

    @property
    def retry_seconds(self) -> int:
        return max(1, *(each.retry_seconds for each in self.allowances))

    @property
    def exhausted(self) -> str:
        """The policy that is in the way for longest."""
        return max(self.allowances, key=lambda each: each.retry_seconds).policy


class RateLimit:
    """Keys and tenants: a request needs a token of both, and one that is refused takes none."""

    def __init__(self, key_rate: Rate) -> None:
        self._key_rate = key_rate
        self._keys = Buckets("key")
        self._tenants = Buckets("tenant")

    def take(self, key_id: str, tenant: str, tenant_rate: Rate, now: float) -> Verdict:
        """
        | key has a token | tenant has a token | →                                     |
        | --------------- | ------------------ | ------------------------------------- |
        | yes             | yes                | let in; one token of each is taken    |
        | no              | any                | refused; nothing is taken             |
        | any             | no                 | refused; nothing is taken             |
        """
        wanted = ((self._keys, key_id, self._key_rate), (self._tenants, tenant, tenant_rate))
        seen = tuple(buckets.look(name, rate, now) for buckets, name, rate in wanted)
        if any(each.tokens < 1 for each in seen):
            return Verdict(is_let_in=False, allowances=seen)
        return Verdict(
            is_let_in=True, allowances=tuple(buckets.take(name, rate, now) for buckets, name, rate in wanted)
        )


class WriteLimit:
    """The bytes that a tenant's requests make Kubernetes store.

    A request of a few bytes may store a large object again, so that its cost is known once it was written: a request is
    let in while the bucket is not empty, and pays afterwards.
    """

    def __init__(self) -> None:
        self._namespaces = Buckets("tenant-written-bytes")

    def look(self, namespace: str, rate: Rate, now: float) -> Allowance:
        """Returns what the tenant of this namespace may still write: of less than one byte, its request is refused."""
        return self._namespaces.take(namespace, rate, now, cost=0)

    def charge(self, namespace: str, written: int) -> None:
        """Other namespaces than those of tenants that were let in are not counted."""
        self._namespaces.charge(namespace, written)


class FailedLogins:
    """Requests without a valid key, by source. A source that sends too many is told to wait instead of why."""

    def __init__(self, per_minute: int, most: int = MOST_BUCKETS) -> None:
        self._rate = Rate(per_minute / 60, per_minute)
        self._sources = Buckets("failed-logins", most)

    def note(self, address: str, now: float) -> Verdict:
        """Returns whether the source is told why it failed, and not to wait."""
        source = find_source(address)
        seen = self._sources.look(source, self._rate, now)
        if seen.tokens < 1:
            return Verdict(is_let_in=False, allowances=(seen,))
        return Verdict(is_let_in=True, allowances=(self._sources.take(source, self._rate, now),))


def find_source(address: str) -> str:
    """
    | address          | source                        |
    | ---------------- | ----------------------------- |
    | IPv4             | itself                        |
    | IPv4 in IPv6     | the IPv4 address              |
    | IPv6             | its /64                       |
    | no address at all | itself                       |
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Address(int(parsed) >> IPV6_SOURCE_BITS << IPV6_SOURCE_BITS))


def build_headers(allowances: tuple[Allowance, ...]) -> Mapping[str, str]:
    """The fields of draft-ietf-httpapi-ratelimit-headers-10: structured lists, one item for each policy."""
    return {
        "RateLimit-Policy": ", ".join(
            f'"{each.policy}";q={each.rate.burst};w={each.rate.window_seconds}' for each in allowances
        ),
        "RateLimit": ", ".join(f'"{each.policy}";r={each.remaining};t={each.reset_seconds}' for each in allowances),
    }
