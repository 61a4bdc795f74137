"""What no container of a tenant may do, root inside or not."""

DROPPED_CAPABILITIES = (
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "BLOCK_SUSPEND",
    "DAC_READ_SEARCH",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "SETPCAP",
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "WAKE_ALARM",
)
"""For images that need root inside: everything that reaches beyond their own container."""
