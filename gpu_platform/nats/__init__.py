"""NATS JetStream: subjects, permissions, streams, records, deliveries. The only package that imports the client."""
