"""NATS JetStream: the records of invocations, the queue of those that wait, and who may take them."""
