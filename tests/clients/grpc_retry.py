"""Calls each kind of method of the shop: once, once more to be refused, and then with gRPC's own retries. Prints what happened
as JSON, method by method.

    grpc_retry.py HOST:PORT
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from grpc_details import details

# Its own backoff is far too short to succeed: only a client that obeys the server's word does.
RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.01s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}


# A message without a word in it is no bytes, so that nothing need be generated for the service.
def unary(channel, method):
    call = channel.unary_unary(method)
    return lambda: [call(b"", timeout=20)]


def client_stream(channel, method):
    call = channel.stream_unary(method)
    return lambda: [call(iter([b"", b""]), timeout=20)]


def server_stream(channel, method):
    call = channel.unary_stream(method)
    return lambda: list(call(b"", timeout=20))


def both_stream(channel, method):
    call = channel.stream_stream(method)
    return lambda: list(call(iter([b"", b""]), timeout=20))


METHODS = {
    "Place": unary,
    "Upload": client_stream,
    "Watch": server_stream,
    "Chat": both_stream,
}


def try_out(address, name):
    method = f"/shop.v1.Orders/{name}"
    with grpc.insecure_channel(address, [("grpc.enable_retries", 0)]) as plain:
        once = METHODS[name](plain, method)
        once()
        asked_at_s = time.monotonic()
        try:
            once()
            refused = None
        except grpc.RpcError as error:
            refused = details(error)
    with grpc.insecure_channel(address, [("grpc.service_config", json.dumps(RETRIES))]) as patient:
        again = METHODS[name](patient, method)
        again()
        passed_at_s = time.monotonic()
    return {
        "refused": refused,
        "asked_at_ms": int(asked_at_s * 1000),
        "passed_at_ms": int(passed_at_s * 1000) + 1,
    }


def main(address):
    with ThreadPoolExecutor() as pool:
        tried = {name: pool.submit(try_out, address, name) for name in METHODS}
        json.dump({name: one.result() for name, one in tried.items()}, sys.stdout)


main(sys.argv[1])
