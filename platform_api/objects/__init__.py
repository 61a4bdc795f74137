"""What requests about any kind of object share: idempotent creates, optimistic updates, limits, paging."""
