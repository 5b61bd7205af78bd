"""A job by the Python client: the cells of this file are those of a notebook.

It submits a job, follows it, scales it, asks why its pods are where they are, and reads its part of the log.
`KUBECONFIG` says which cluster, and `ARRANGER_SERVER` where `arranger serve` listens.
"""

# %%
from arranger.client import Client, Stage

client = Client()

# %% [markdown]
# A job is an object, YAML text, or the path of a YAML file. A wrong field is refused with its name. `apply` creates the
# job, or changes it when the cell runs again.

# %%
container = {"name": "main", "image": "registry.example/rl:1.0", "resources": {"requests": {"cpu": "500m"}}}
template = {"spec": {"containers": [container]}}
job = client.apply(
    {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": {"name": "notebook"},
        "spec": {
            "minWorkersNum": 1,
            "leader": {"name": "learner", "template": template},
            "workerSets": [{"name": "actors", "counts": 2, "template": template}],
        },
    }
)
job

# %% [markdown]
# `wait` watches the job. After `timeout_s` it raises an error that says what the job waits for.

# %%
job = client.wait("notebook", Stage.RUNNING, timeout_s=120)
for pod in client.pods("notebook"):
    print(pod.name, "(the leader)" if pod.is_leader else "", pod.node)
print(client.logs("notebook", tail=20))

# %%
client.scale("notebook", 3)
job = client.wait_until("notebook", lambda job: job.ready_workers == 3, timeout_s=120)
print(job.ready_workers, "workers are ready")

# %% [markdown]
# The server answers as the commands do, and a notebook shows the answer. Its fields have types: an editor knows them.

# %%
explanation = client.explain("notebook")
print(explanation.standing.stage, explanation.standing.allocation)
explanation

# %%
client.queues()

# %%
client.what_if(job="notebook", priority=7)

# %% [markdown]
# `to_pandas()` makes a `pandas.DataFrame` of an answer or of events, and `to_arrow()` a `pyarrow.Table`.

# %%
for event in client.events(job="notebook", kinds=["StageDecided", "Placed"]):
    print(event["offset"], event["kind"], event["text"])

# %%
client.delete("notebook")
client.close()
