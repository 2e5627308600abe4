"""What other packages don't promise, but circlet needs: a failure here names what a new version has changed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.compat import annif_backends, csr_matvecs, has_bfloat16_instructions, waits_for_client


@pytest.mark.parametrize("integers", [np.int32, np.int64])
def test_scipy_adds_a_product_to_what_is_there(integers):
    rows = sp.csr_matrix(np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3]], dtype=np.float32))
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = np.ones((3, 4), dtype=np.float32)
    starts, columns = rows.indptr.astype(integers), rows.indices.astype(integers)
    csr_matvecs(3, 3, 4, starts, columns, rows.data, weight.reshape(-1), out.reshape(-1))
    np.testing.assert_array_equal(out, 1 + rows.toarray() @ weight)


class TestTorch:
    def test_it_says_what_the_cpu_can(self):
        capable = torch.cpu.get_capabilities()
        assert has_bfloat16_instructions(torch.cpu) is any(
            bool(capable.get(name, False)) for name in ("avx512_bf16", "amx_tile")
        )
        if capable["architecture"] == "x86_64":  # elsewhere it does not ask for them
            assert {"avx512_bf16", "amx_tile"} <= set(capable)

    @pytest.mark.parametrize(
        ("answers", "expected"), [((False, False), False), ((True, False), True), ((False, True), True)]
    )
    def test_versions_old_and_new(self, answers, expected):
        names = dict(zip(("avx512_bf16", "amx_tile"), answers, strict=True))
        old = {f"_is_{name}_supported": lambda answer=answer: answer for name, answer in names.items()}
        assert has_bfloat16_instructions(SimpleNamespace(**old)) is expected
        assert has_bfloat16_instructions(SimpleNamespace(get_capabilities=lambda: names)) is expected
        assert not has_bfloat16_instructions(SimpleNamespace())


def test_annif_lists_its_backends():
    backend = pytest.importorskip("annif.backend")
    backends = annif_backends(backend)
    assert backends is not None
    assert callable(backends["dummy"])
    assert annif_backends(SimpleNamespace()) is annif_backends(SimpleNamespace(_backend_fns=[])) is None


@pytest.mark.parametrize(
    ("module", "name"), [("httptools_impl", "HttpToolsProtocol"), ("h11_impl", "H11Protocol")]
)
def test_uvicorn_says_who_waits_for_whom(module, name):
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    protocol = getattr(pytest.importorskip(f"uvicorn.protocols.http.{module}"), name)

    async def main() -> None:
        answering = asyncio.Event()

        async def app(scope, receive, send):
            await answering.wait()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        config = uvicorn.Config(app, log_config=None)
        config.load()
        state = uvicorn.server.ServerState()
        connection = protocol(config, state, {})
        assert waits_for_client(connection)  # nothing has come yet
        connection.connection_made(Mock(is_closing=lambda: False, get_extra_info=lambda *_: None))
        assert state.connections == {connection}
        connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
        assert waits_for_client(connection)  # a part of the body has
        connection.data_received(b"cd")
        assert not waits_for_client(connection)  # we compute
        connection.pause_writing()
        assert waits_for_client(connection)  # it does not take its answer
        connection.resume_writing()
        answering.set()
        while state.tasks:
            await asyncio.sleep(0)
        assert not waits_for_client(connection)  # uvicorn's own timer closes it
        connection.data_received(b"GET / HT")
        assert waits_for_client(connection)  # a part of the next request
        connection.connection_lost(None)

    asyncio.run(main())
