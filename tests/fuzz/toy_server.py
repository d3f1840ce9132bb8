"""The network layer alone in a process of its own: `python -m tests.fuzz.toy_server` prints its port and serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.network.limits import NetworkLimits
from fluss.server.network.server import BoundListener, NetworkServer
from fluss.server.runtime.handlers import Handler, RequestContext
from fluss.server.runtime.log_output import set_up_logging
from tests.support.servers.toy_network import ToyService, bound_socket


class FuzzService(ToyService):
    """The toy service without memory: nothing is noted, nothing waits."""

    def apis(self) -> Mapping[int, Handler]:
        """All handlers, with one that answers where the toy waits."""
        return {**super().apis(), ApiKey.DATABASE_EXISTS: self.exists}

    async def exists(self, context: RequestContext, request: pb.DatabaseExistsRequest) -> pb.DatabaseExistsResponse:
        """Waits for one turn of the loop."""
        await asyncio.sleep(0)
        self.order.clear()
        self.contexts.clear()
        return pb.DatabaseExistsResponse(exists=False)


async def serve() -> None:
    """Serve until killed."""
    listener = BoundListener("FLUSS", "PLAINTEXT", bound_socket())
    # Failed logins would end connections, and every frame is to be answered here.
    server = NetworkServer(FuzzService(), [listener], NetworkLimits(max_login_failures_per_connection=2**31))
    await server.start()
    print(listener.socket.getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    set_up_logging("toy", "info", None)
    asyncio.run(serve())
