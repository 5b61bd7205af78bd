"""A stand-in for vLLM over several nodes: it takes the same flags, and its pods meet at rank 0 as torchrun's do.

Each pod prints the indices of the workers in its world as one line of JSON, `{"world": [...]}`, and runs on.
"""

import argparse
import os
import time

from tests.standins.torchrun import meet


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--distributed-executor-backend", choices=["mp"], required=True)
    for number in ("tensor-parallel-size", "pipeline-parallel-size", "nnodes", "node-rank", "master-port"):
        parser.add_argument(f"--{number}", type=int, required=True)
    parser.add_argument("--master-addr", required=True)
    parser.add_argument("--headless", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    given = _flags()
    assert given.headless == (given.node_rank > 0), "the first pod serves, and no other"
    assert given.pipeline_parallel_size == given.nnodes
    meet(
        given.node_rank,
        given.nnodes,
        given.master_addr,
        given.master_port,
        me=int(os.environ["TYJOB_WORKER_INDEX"]),
    )
    while True:
        time.sleep(60)
