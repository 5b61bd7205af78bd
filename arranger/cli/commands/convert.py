"""`arranger convert`: make TYJobs of the manifests of other schedulers and operators."""

from collections.abc import Sequence
from pathlib import Path

import click

from arranger.cli.rendering.output import output_as, print_json, print_yaml, say
from arranger.errors import UsageError

_FILE = click.Path(allow_dash=True)


@click.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the YAML into a new file in place of standard output.",
)
@output_as("yaml", "json", help="YAML for kubectl with the notes on standard error, or all of it as JSON for programs.")
def command(files: Sequence[str], target: Path | None, output: str) -> int:
    r"""Make TYJobs and Queues of manifests of other schedulers and operators.

    FILEs hold Jobs of Volcano, TFJobs, PyTorchJobs and MPIJobs of Kubeflow, RayClusters and RayJobs, JobSets,
    LeaderWorkerSets, and Jobs of batch/v1, Queues of Volcano, ClusterQueues and Cohorts of Kueue: YAML or JSON, with
    Lists and any number of documents. A FILE can be a folder of such files, or - for standard input. The TYJobs go to
    standard output, with claims that the source's operator would make. All are checked as kubectl apply checks them.

    Give jobs and queues together: a job of a LocalQueue is then in the Queue of its ClusterQueue, and a cohort has what
    its ClusterQueues have.

    Nothing is stopped: an object that runs goes on beside its TYJob, on the same volumes. Delete it before you apply
    the TYJob.

    Notes go to standard error, with file, line and field: first what is left to do, then what means something else now,
    then what has no equivalent. What is to be said of many objects is said once, with their number and the place of the
    first; the JSON has each. A field without a note is carried over, or has no effect. The exit status is 1 if an
    object can't be converted; the others are converted all the same. All wrong fields of an object are told at once.
    Objects of other kinds are skipped, with what to do with them.

    \b
      arranger convert train.yaml > tyjob.yaml
      arranger convert volcano/ jobset.yaml --to tyjobs.yaml
      kubectl get pytorchjob mnist -o yaml | arranger convert - | kubectl apply -f -
      arranger convert rayjob.yaml -o json
    """
    from arranger.cli.inputs.cluster_files import contents
    from arranger.cli.rendering.conversions import as_json, as_yaml, told
    from arranger.convert import Conversion, converted, documents

    if target is not None and target.exists():
        raise UsageError(f"{target} already exists", hint="use another name: nothing is overwritten")
    found = converted(document for name, content in contents(files) for document in documents(name, content))
    if not found:
        raise UsageError("the input has no object", hint="name files with manifests, or - for standard input")
    if output == "json":
        print_json(as_json(found))
    else:
        for line in told(found):
            say(line, err=True)
        content = as_yaml(found)
        if target is not None and content:
            _write(target, content)
        elif target is None:
            print_yaml(content)
    return int(any(isinstance(each, Conversion) and bool(each.faults) for each in found))


def _write(target: Path, content: str) -> None:
    try:
        target.write_text(content, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{target} can't be written: {problem.strerror}") from problem
