"""A second applier under a backlog, as KEDA starts one: it takes its share, and nothing is done twice."""

from pathlib import Path

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import Worker, apply, eventually, fleet, job, kubelets, stages
from tests.e2e.history import History
from tests.servers import RealKube, RealRedis

JOBS = 300
#: What `deploy/keda` divides, as a counter: its rate is the mean number of jobs in work.
IN_WORK = 'arranger_look_seconds_total{role="applier"}'
CREATED = 'arranger_api_requests_total{code="201",resource="pods",verb="create"}'


def created(worker: Worker) -> int:
    """The pods that this applier has created."""
    return int(worker.metrics().get(CREATED, 0))


def test_a_second_applier_takes_its_share_of_a_backlog(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    history = History(kube.kubeconfig)
    history.start()
    nodes = [NodeTemplate(f"node-{number}", cpu="128", pods=200) for number in range(8)]
    names = [f"job-{number:03}" for number in range(JOBS)]
    # One request at a time, so that one applier can't keep up, whatever the machine.
    with kubelets(kube, *nodes), fleet(redis_url=redis.url, kube=kube, folder=tmp_path, api_in_flight=1) as workers:
        workers.start(("watcher",), ("controller", "scheduler", "maintenance"))
        # All jobs are there before the first applier: on a busy machine, kubectl is no faster than that one.
        for begin in range(0, JOBS, 20):
            apply(kube, *[job(name, workers=2) for name in names[begin : begin + 20]])
        (first,) = workers.start(("applier",))
        eventually("it works on the backlog", lambda: created(first) >= 20)
        (second,) = workers.start(("applier",))
        before = created(first)
        eventually("all pods are created", lambda: len(history.created()) == 3 * JOBS)
        eventually("all jobs run", lambda: set(stages(kube).values()) == {"Running"})
        one, other = created(first) - before, created(second)
        assert before + one + other == 3 * JOBS
        assert one > 0 and other > (one + other) / 4, (before, one, other)
        for worker in (first, second):
            assert eventually("its jobs in work are counted", lambda of=worker: of.metrics()[IN_WORK]) > 0
        history.stop()
    assert history.faults(unfinished=names) == []
