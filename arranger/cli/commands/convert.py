"""`arranger convert`: make TYJobs of the manifests of other schedulers and operators."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from arranger.cli.rendering.output import output_as, print_json, print_yaml, say, yaml_document
from arranger.errors import UsageError
from arranger.model.text import counted

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
    r"""Make TYJobs of manifests of other schedulers and operators.

    FILEs hold Jobs of Volcano, TFJobs, PyTorchJobs and MPIJobs of Kubeflow, RayClusters and RayJobs, JobSets,
    LeaderWorkerSets, and Jobs of batch/v1: YAML or JSON, with Lists and any number of documents. A FILE can be a folder
    of such files, or - for standard input. The TYJobs go to standard output, with claims that the source's operator
    would make. They are checked as kubectl apply checks them.

    Nothing is stopped: an object that runs goes on beside its TYJob, on the same volumes. Delete it before you apply
    the TYJob.

    Notes go to standard error, with file, line and field: what has no equivalent, what means something else now, and
    what is left to do. A field without a note is carried over, or has no effect. The exit status is 1 if an object
    can't be converted; the others are converted all the same. All wrong fields of an object are told at once. Objects
    of other kinds are skipped, with what to do with them.

    \b
      arranger convert train.yaml > tyjob.yaml
      arranger convert volcano/ jobset.yaml --to tyjobs.yaml
      kubectl get pytorchjob mnist -o yaml | arranger convert - | kubectl apply -f -
      arranger convert rayjob.yaml -o json
    """
    from arranger.cli.inputs.cluster_files import contents
    from arranger.convert import Conversion, converted, documents

    if target is not None and target.exists():
        raise UsageError(f"{target} already exists", hint="use another name: nothing is overwritten")
    found = converted(document for name, content in contents(files) for document in documents(name, content))
    if not found:
        raise UsageError("the input has no object", hint="name files with manifests, or - for standard input")
    if output == "json":
        print_json(_as_json(found))
    else:
        _tell(found)
        content = "".join(_yaml(each) for each in found if isinstance(each, Conversion) and each.objects)
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


#: Kinds of notes in words.
_WORDS = {"noEquivalent": "no equivalent", "changed": "changed", "toDo": "to do"}


def _tell(found: Sequence[Any]) -> None:
    """Everything that is to be said of the objects, a line each, and a line that sums up."""
    for each in found:
        for line in _lines(each):
            say(line, err=True)
    made = [of for each in found for of in getattr(each, "objects", ()) if of["kind"] == "TYJob"]
    sources = sum(bool(getattr(each, "objects", ())) for each in found)
    failed, skipped = (
        sum(bool(getattr(each, "faults", ())) for each in found),
        sum(hasattr(of, "reason") for of in found),
    )
    more = f"; {failed} not converted" if failed else ""
    more += f"; {skipped} of other kinds skipped" if skipped else ""
    notes = sum(len(getattr(each, "notes", ())) for each in found)
    say(f"{counted(len(made), 'TYJob')} of {counted(sources, 'object')}, {counted(notes, 'note')}{more}", err=True)


def _lines(each: Any) -> Iterator[str]:
    file = each.document.file
    if hasattr(each, "reason"):
        yield f"{file}:{each.document.line()}: {_named(each)}: skipped: {each.reason}"
        return
    for note in each.notes:
        yield f"{file}:{each.document.line(note.path)}: {note.path}: {_WORDS[note.kind]}: {note.text}"
    for path, words in each.faults:
        yield f"{file}:{each.document.line(path)}: {path or _named(each)}: not converted: {words}"


def _named(each: Any) -> str:
    return f"{each.kind} {each.name}".rstrip()


def _as_json(found: Sequence[Any]) -> dict[str, Any]:
    """The whole answer for programs."""
    answer: dict[str, Any] = {"objects": [], "notes": [], "faults": [], "skipped": []}
    for each in found:
        document = each.document
        of = {"file": document.file, "kind": each.kind, "name": each.name}
        if hasattr(each, "reason"):
            answer["skipped"].append(of | {"line": document.line(), "reason": each.reason})
            continue
        answer["objects"] += each.objects
        answer["notes"] += [
            of | {"line": document.line(note.path), "field": note.path, "note": note.kind, "text": note.text}
            for note in each.notes
        ]
        answer["faults"] += [
            of | {"line": document.line(path), "field": path, "text": words} for path, words in each.faults
        ]
    return answer


def _yaml(each: Any) -> str:
    """The objects that came of one, as documents of YAML."""
    where = f"Made of {_named(each)}, {each.document.file}:{each.document.line()}"
    return "".join(yaml_document(of, where) for of in each.objects)
