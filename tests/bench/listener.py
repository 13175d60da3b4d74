"""What the part `shards` is compared with: a stock grpcio server, so gRPC's own listener, that does with the bytes what the
coordinator does. It writes them to a new file, hashes and syncs that with the last one, renames it over the one before,
and reads it back in pieces of the same size.

    python3 tests/bench/listener.py STUBS FOLDER [HOST CERTIFICATES]      prints its address, serves until stdin ends

With TLS on HOST where there is one: CERTIFICATES has server.pem and server.key.
"""
import concurrent.futures
import importlib
import os
import sys

import grpc

PIECE = 256 << 10


def main():
    stubs, folder, *tls = sys.argv[1:]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [stubs, os.path.dirname(here)]
    load = lambda name: importlib.import_module(f"traind.v1.{name}")
    node, checkpoint = load("node_pb2"), load("checkpoint_pb2")
    from fake_node import digest

    class Node(load("node_pb2_grpc").NodeServiceServicer):
        def PutShard(self, chunks, context):
            part = os.path.join(folder, "shard.part")
            with open(part, "w+b") as f:
                for chunk in chunks:
                    f.write(chunk.data)
                f.seek(0)
                assert digest(f.read()) == chunk.digest
                os.fsync(f.fileno())
                os.rename(part, os.path.join(folder, "shard"))
                return node.PutReply(offset=f.tell())

    class Checkpoint(load("checkpoint_pb2_grpc").CheckpointServiceServicer):
        def ReadShard(self, request, context):
            with open(os.path.join(folder, "shard"), "rb") as f:
                for offset in range(0, os.fstat(f.fileno()).st_size, PIECE):
                    yield checkpoint.ReadShardResponse(offset=offset, data=f.read(PIECE))

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    load("node_pb2_grpc").add_NodeServiceServicer_to_server(Node(), server)
    load("checkpoint_pb2_grpc").add_CheckpointServiceServicer_to_server(Checkpoint(), server)
    if tls:
        read = lambda name: open(os.path.join(tls[1], name), "rb").read()
        credentials = grpc.ssl_server_credentials([(read("server.key"), read("server.pem"))])
        print(f"{tls[0]}:{server.add_secure_port(f'{tls[0]}:0', credentials)}", flush=True)
    else:
        print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
