"""Talks to the shop, one message after the other, each when the one before has been answered, until the stream ends. Prints how
many were answered, and how it ended, as JSON.

    grpc_stream.py HOST:PORT
"""

import json
import queue
import sys

import grpc

from grpc_details import details


def main(address):
    to_send = queue.Queue()
    answered = 0
    ended = None
    with grpc.insecure_channel(address) as channel:
        chat = channel.stream_stream("/shop.v1.Orders/Chat")
        to_send.put(b"")
        try:
            for _ in chat(iter(to_send.get, None), timeout=20):
                answered += 1
                to_send.put(b"")
        except grpc.RpcError as error:
            ended = details(error)
        to_send.put(None)
    json.dump({"answered": answered, "ended": ended}, sys.stdout)


main(sys.argv[1])
