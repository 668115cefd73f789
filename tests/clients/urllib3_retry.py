"""Fetches a URL once, and then once more with urllib3's own retries. Prints what happened as JSON.

    urllib3_retry.py URL
"""

import json
import math
import sys
import time

import urllib3


def main(url):
    client = urllib3.PoolManager(timeout=10)
    start = time.monotonic()
    first = client.request("GET", url, retries=False)
    # As it comes: a 429 or 503 is tried again if it has Retry-After, and not before that.
    second = client.request("GET", url, retries=urllib3.Retry(total=5))
    waited_s = time.monotonic() - start
    json.dump(
        {
            "first": first.status,
            "refused_with": [attempt.status for attempt in second.retries.history],
            "last": second.status,
            "waited_ms": math.ceil(waited_s * 1000),
        },
        sys.stdout,
    )


main(sys.argv[1])
