"""What a tenant's container may do as root inside: Linux capabilities. Pure.

Everything is dropped, and a short list is added back, so that a capability that a runtime or a later kernel grants by
default reaches nobody. Without `NET_RAW` no container can forge packets or read its neighbours' by ARP.

| capability         | what images need it for                                                |
| ------------------ | ---------------------------------------------------------------------- |
| `AUDIT_WRITE`      | PAM: logins of `sshd`, `su` and `sudo`                                 |
| `CHOWN`            | package managers, entrypoints that hand a directory to their user      |
| `DAC_OVERRIDE`     | root reads and writes files of other users                             |
| `FOWNER`           | `chmod` of files of other users                                        |
| `FSETID`           | set-group-ID directories keep their bit                                |
| `NET_BIND_SERVICE` | ports below 1024                                                       |
| `SETGID`, `SETUID` | entrypoints that begin as root and go on as a user                     |
| `SYS_CHROOT`       | the privilege separation of `sshd`                                     |

All of them are in the Pod Security profile `baseline`; a `restricted` namespace adds none back.
"""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

ADDED_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
)


def build_capabilities(added: Sequence[str] = ()) -> Json:
    return {"drop": ["ALL"], **({"add": list(added)} if added else {})}
