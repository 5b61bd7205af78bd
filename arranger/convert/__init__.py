"""TYJobs and Queues of the manifests of other schedulers and operators: a kind's object in, theirs and notes out.

One module knows one family of kinds. What all need is below them: `reading` gives documents whose fields have lines,
`whole_input` what the objects say of one another, `fields` hands out the fields of an object and names those that
nobody took, `templates` takes pod templates, `parts` builds the TYJob, and `queue_parts` the Queue. Nothing here reads
files, and nothing of a source is dropped without a word: a field is carried over, known to have no effect, or in a
note.
"""

from arranger.convert.conversion import JOBS, QUEUES, Conversion, Skipped, converted
from arranger.convert.fields import ConversionProblem, Note, NoteKind
from arranger.convert.reading import Document, Unreadable, documents

__all__ = [
    "JOBS",
    "QUEUES",
    "Conversion",
    "ConversionProblem",
    "Document",
    "Note",
    "NoteKind",
    "Skipped",
    "Unreadable",
    "converted",
    "documents",
]
