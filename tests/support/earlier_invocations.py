"""Requests, and the hashes and the record that the API made of them before it kept payloads as bytes."""

import json

REQUEST = rb"""{"timeoutSeconds": 60,
 "payload": {"z": [1e5, 1.10, -0.0, 1E-7, 0, -0, 12345678901234567890123, true, null, {}, []],
  "a": {"b": null, "\u00e9\ud83d\ude00": "caf\u00e9 \u0009 \"quoted\" \/ \\"}, "": ""},
 "headers": {"X-B": "2", "X-A": "1"}, "attributes": {"payload": "not this one"},
 "invocationID": "frozen-1", "serverlessRequestID": "words", "mode": "sync"}"""
REQUEST_HASH = "81b206e6c5b25e6a0fa6ead993053650fba6af05bda8f716bc5a626f40347f32"

LARGE_REQUEST = (
    b'{"serverlessRequestID": "words", "invocationID": "frozen-2", "payload": '
    + json.dumps({"rows": [[n, n / 7, str(n)] for n in range(20_000)]}).encode()
    + b"}"
)
LARGE_HASH = "e45ba7e6370dc065ec37e43604059af97a3cd9ccb10a4c6bfd2ba58b7c51611c"

EMPTY_REQUEST = b'{"serverlessRequestID": "words", "invocationID": "frozen-3", "payload": null}'
EMPTY_HASH = "ad6878253588d46ff64e06d6dcd5d8d6cce7240c38e2a76cd73a5376227657a0"

PAYLOAD = (
    '{"z":[100000.0,1.1,-0.0,1e-07,0,0,12345678901234567890123,true,null,{},[]],'
    '"a":{"b":null,"é😀":"café \\t \\"quoted\\" / \\\\"},"":""}'
)
RECORD = (
    '{"version":"v1","tenant":"acme","function":"words","id":"frozen-1",'
    f'"requestHash":"{REQUEST_HASH}","mode":"sync","state":"queued",'
    '"contentType":"application/json","headers":{"X-B":"2","X-A":"1"},"attributes":{"payload":"not this one"},'
    f'"payload":{PAYLOAD},"acceptedAt":"2026-11-16T12:00:00Z","expiresAt":"2026-11-16T12:01:00Z",'
    '"isCancelAsked":false,"attempts":0,"isAlone":false}'
).encode()
"""As it was stored. A test may replace the tenant and the times."""
