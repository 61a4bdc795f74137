"""All the keys of one installation of NATS, and what is made of them: the server's block, and everybody's credentials.

The keys last; tokens are made of them as often as one likes. A new version of the platform that needs other rights gets
them with new credentials of the same users.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from gpu_platform.domain.queue_keys import KeyFormError, KeyRole, build_seed, public_key_of, read_seed
from gpu_platform.nats.credentials import (
    Credentials,
    build_account,
    build_export,
    build_import,
    build_operator,
    build_user,
)
from gpu_platform.nats.permissions import SHARED, QueueUser, permissions_of

OPERATOR = "gpu-platform"
ACCOUNT = "PLATFORM"
WORKERS_ACCOUNT = "WORKERS"
SYSTEM_ACCOUNT = "SYSTEM"


class KeyringError(ValueError):
    """What is no ring of keys. The message shows none of them."""


@dataclass(frozen=True)
class Keyring:
    """Seeds, every one of them a secret."""

    operator: str
    """Can make everything else anew. No process needs it."""

    system: str
    account: str
    """Has the streams, and signs the platform's own users."""

    workers: str
    """Signs the users of the functions' workers. The reconciler has it; it opens nothing that no worker may do."""

    users: Mapping[QueueUser, str]

    @classmethod
    def new(cls, draw: Callable[[int], bytes]) -> Self:
        """`draw` gives as many random bytes."""

        def seed(role: KeyRole) -> str:
            return build_seed(role, draw(32))

        return cls(
            operator=seed(KeyRole.OPERATOR),
            system=seed(KeyRole.ACCOUNT),
            account=seed(KeyRole.ACCOUNT),
            workers=seed(KeyRole.ACCOUNT),
            users={user: seed(KeyRole.USER) for user in QueueUser},
        )

    def render(self) -> str:
        seeds = {"operator": self.operator, "system": self.system, "account": self.account, "workers": self.workers}
        return json.dumps({**seeds, "users": {str(user): seed for user, seed in self.users.items()}}, indent=2) + "\n"

    def credentials_of(self, user: QueueUser, now: datetime) -> Credentials:
        seed = self.users[user]
        account = self.system if user is QueueUser.SYSTEM else self.account
        token = build_user(account, public_key_of(seed), user, permissions_of(user), now)
        return Credentials(token, seed)

    def render_server(self, now: datetime) -> str:
        """The block of a server's configuration: whom it believes, and which accounts there are."""
        system, account, workers = (public_key_of(seed) for seed in (self.system, self.account, self.workers))
        exports = [build_export(shared) for shared in SHARED]
        imports = [build_import(shared, account) for shared in SHARED]
        return f"""\
operator: {build_operator(self.operator, OPERATOR, system, now)}
system_account: {system}
resolver: MEMORY
resolver_preload: {{
  # {SYSTEM_ACCOUNT}
  {system}: {build_account(self.operator, system, SYSTEM_ACCOUNT, now)}
  # {ACCOUNT}
  {account}: {build_account(self.operator, account, ACCOUNT, now, exports=exports, jetstream=True)}
  # {WORKERS_ACCOUNT}
  {workers}: {build_account(self.operator, workers, WORKERS_ACCOUNT, now, imports=imports)}
}}
"""


def parse_keyring(text: str) -> Keyring:
    try:
        fields: dict[str, Any] = json.loads(text)
        users = {user: fields["users"][user] for user in QueueUser}
        keyring = Keyring(fields["operator"], fields["system"], fields["account"], fields["workers"], users)
        roles = [read_seed(seed)[0] for seed in (keyring.operator, keyring.system, keyring.account, keyring.workers)]
        roles += [read_seed(seed)[0] for seed in users.values()]
    except KeyFormError as error:
        raise KeyringError(str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise KeyringError(f"not the keys of an installation ({type(error).__name__})") from error
    if roles != [KeyRole.OPERATOR, *[KeyRole.ACCOUNT] * 3, *[KeyRole.USER] * len(users)]:
        raise KeyringError("its keys are in the wrong places")
    return keyring
