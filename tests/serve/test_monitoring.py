from __future__ import annotations

import re

from circlet.serve.guard import BUCKETS, Monitor

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+|\+Inf)')


def samples(text):
    """Parse the text format: every line is a comment or a sample, and samples follow their type."""
    found, types = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert re.sub("_(bucket|sum|count)$", "", name) in types or name in types
            found[name, labels or ""] = float(value)
    return found, types


def test_a_service(client):
    client.post("/v1/models/colors/suggest", json={"texts": ["a", "b"]})
    client.post("/v1/models/colors/suggest", json={})
    client.get("/nowhere")
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found, types = samples(answer.text)
    route = 'route="/v1/models/{model}/suggest"'
    assert found["circlet_requests_total", f'{route},method="POST",status="200"'] == 1
    assert found["circlet_requests_total", f'{route},method="POST",status="422"'] == 1
    assert found["circlet_requests_total", 'route="none",method="GET",status="404"'] == 1
    assert found["circlet_request_seconds_count", route] == 2
    assert found["circlet_request_seconds_bucket", f'{route},le="+Inf"'] == 2
    assert found["circlet_documents_total", ""] == 2
    assert found["circlet_queue_documents", ""] == 0
    assert found["circlet_learning_state", 'model="colors",state="idle"'] == 1
    assert types["circlet_request_seconds"] == "histogram"


def test_histogram(client):
    monitor = Monitor()
    for seconds in (0.001, 0.0011, 3.0, 100.0):
        monitor.observe('a"\n\\', "GET", 200, seconds)
    found, _ = samples(monitor.text({}, client.app.service.batcher))
    route = 'route="a\\"\\n\\\\"'
    assert found["circlet_request_seconds_bucket", f'{route},le="0.001"'] == 1
    assert found["circlet_request_seconds_bucket", f'{route},le="0.0025"'] == 2
    assert found["circlet_request_seconds_bucket", f'{route},le="5.0"'] == 3
    assert found["circlet_request_seconds_bucket", f'{route},le="+Inf"'] == 4
    assert found["circlet_request_seconds_sum", route] == 103.0021
    assert sorted(BUCKETS) == list(BUCKETS)
