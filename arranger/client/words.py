"""The answers in the words of the commands: what `print` and notebooks show is what the command line prints in a pipe.

The printers are those of the command line. They are imported when they are needed, so that a client that shows nothing
doesn't load them.
"""

import shlex

from arranger.model.config import CycleConfig
from arranger.replay.explain.answer import Explanation
from arranger.replay.forecast.starts import Forecast, JobForecast, JobStarts
from arranger.replay.ledger.preemptions import PreemptionList
from arranger.replay.ledger.waits import WaitSums
from arranger.replay.reading.overview import Overview
from arranger.replay.reading.queues import QueueDetail, QueueHoldings, QueueList
from arranger.replay.what_if.comparison import WhatIf
from arranger.replay.what_if.one_cycle import Inputs

#: An answer that has such words.
Told = Explanation | Overview | QueueList | QueueDetail | QueueHoldings | WaitSums | PreemptionList | JobStarts | WhatIf


def words(answer: Told) -> str:
    """What the command prints of this answer with `--all`; of an explanation and a what-if, without it."""
    from arranger.cli.rendering import explain_page, ledger_page, output, overview_page, queue_page

    with output.captured() as lines:
        match answer:
            case Explanation():
                again = f"arranger explain {shlex.quote(answer.standing.job)} --at"
                explain_page.ExplanationPrinter(answer, again=again, everything=False).print()
            case Overview():
                overview_page.print_overview(answer, everything=True)
            case QueueList():
                queue_page.print_queues(answer, "")
            case QueueDetail():
                queue_page.print_queue(answer, "", everything=True)
            case QueueHoldings():
                queue_page.print_holdings(answer, everything=True)
            case WaitSums():
                fields = [getattr(answer, name) for name in WaitSums.__struct_fields__]
                ledger_page.WaitsAnswer(*fields).print(everything=True)
            case PreemptionList():
                ledger_page.print_preemptions(answer, everything=True)
            case JobStarts():
                _print_starts(answer)
            case WhatIf():
                _print_what_if(answer)
    return "\n".join(lines)


def _print_starts(answer: JobStarts) -> None:
    from arranger.cli.rendering.forecast_page import ForecastAnswer

    jobs = [
        JobForecast(
            one.uid,
            one.job,
            one.queue_position,
            one.expected_ms or 0,
            one.earliest_ms or 0,
            one.latest_ms or 0,
            one.why,
            one.promised_ms or 0,
            one.guess,
            one.failing or "",
        )
        for one in answer.jobs
    ]
    # Of the jobs that weren't asked for, nothing is said.
    found = Forecast(answer.offset, answer.time_ms, tuple(jobs), len(jobs), answer.endless)
    ForecastAnswer(found, jobs).print(everything=True)


def _print_what_if(answer: WhatIf) -> None:
    from arranger.cli.rendering import output, what_if_page

    inputs = Inputs(answer.base, answer.time_ms, CycleConfig(), answer.cycle)
    what_if_page.WhatIfAnswer(
        inputs,
        answer.otherwise,
        answer.as_it_was,
        answer.what_if,
        answer.reproduced,
        answer.edits,
        answer.supposed,
        answer.changed_job,
        answer.after_dry_runs,
    ).print(everything=False)
    if answer.until is not None:
        output.say()
        what_if_page.print_continuations(answer.until)
