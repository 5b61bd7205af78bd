// What a page without a server plays: facts of `arranger export --html`, and what was so at a time.
import type { Explained, Gantt, NodeGantt, Series, Timeline } from "./types";

/** At, time in ms, stage, waits for, message (numbers of texts), pods placed, pods desired, GPUs, queue (number of a text),
 * the priority that counts there, the job's own. */
type Row = [number, number, number, number, number, number, number, number, number, number, number];
/** At, time in ms, kind, words (numbers of texts), numbers of jobs, subject (number of a text). */
type Event = [number, number, number, number, number[], number];
export type Told = Omit<Explained, "intervals" | "placementExplanations"> & { offset: number };

export interface Facts {
  version: string;
  playback: {
    epoch: number;
    first: number;
    last: number;
    firstMs: number;
    lastMs: number;
    timeline: Timeline;
    series: Series;
    gantt: Gantt;
    nodes: NodeGantt;
    jobs: { job: string; steps: Row[] }[];
    happenings: Event[];
    texts: string[];
    /** The job that was asked for, if any. */
    job?: string;
  };
  explanations: Record<string, Told[]>;
}

/** A state of a job, in the words of `arranger explain`. An empty stage: the job is gone. */
export interface Step {
  at: number;
  timeMs: number;
  stage: string;
  waitingFor: string;
  message: string;
  placed: number;
  desired: number | null;
  gpus: number;
  queue: string;
  /** The one that counts in its queue. */
  priority: number | null;
  ownPriority: number | null;
}

export interface Happening {
  at: number;
  timeMs: number;
  kind: string;
  words: string;
  jobs: string[];
  subject: string;
}

export interface Played {
  job: string;
  steps: Step[];
  told: Told[];
}

/** The last one that begins at or before a time or an offset; -1: none. They are sorted. */
export function lastUpTo<T>(all: readonly T[], value: number, of: (one: T) => number): number {
  let low = 0;
  let high = all.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(all[middle]!) <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

const byTime = (one: { timeMs: number }): number => one.timeMs;
const byOffset = (one: { at: number }): number => one.at;

export class Playback {
  readonly jobs: Played[];
  readonly happenings: Happening[];
  /** Where decisions were: steps of time. */
  readonly decisions: Happening[];
  readonly #points: { at: number; timeMs: number }[];

  constructor(readonly facts: Facts) {
    const { jobs, happenings, texts, series, first, firstMs, last, lastMs } = facts.playback;
    const text = (number: number): string => texts[number] ?? "";
    this.jobs = jobs.map(({ steps, ...of }) => ({
      ...of,
      steps: steps.map(([at, timeMs, stage, waitingFor, message, placed, desired, gpus, queue, priority, ownPriority]) => ({
        at, timeMs, stage: text(stage), waitingFor: text(waitingFor), message: text(message), placed, desired, gpus,
        queue: text(queue), priority, ownPriority,
      })),
      told: (facts.explanations[of.job] ?? []).sort((one, other) => one.offset - other.offset),
    }));
    this.happenings = happenings.map(([at, timeMs, kind, words, of, subject]) => ({
      at, timeMs, kind: text(kind), words: text(words), jobs: of.map((number) => jobs[number]?.job ?? ""), subject: text(subject),
    }));
    this.decisions = this.happenings.filter((one) => one.kind === "Placed" || one.kind === "Preempted" || one.kind === "Waits");
    const known = [
      { at: first, timeMs: firstMs },
      ...this.jobs.flatMap((one) => one.steps),
      ...this.jobs.flatMap((one) => one.told.map(({ offset, timeMs }) => ({ at: offset, timeMs }))),
      ...this.happenings,
      ...series.times.map((time, number) => ({ at: series.offsets[number]!, timeMs: Math.round(time * 1000) })),
      { at: last, timeMs: lastMs },
    ];
    this.#points = known.map(({ at, timeMs }) => ({ at, timeMs })).sort((one, other) => one.at - other.at);
  }

  get firstMs(): number {
    return this.facts.playback.firstMs;
  }
  get lastMs(): number {
    return Math.max(this.facts.playback.lastMs, this.firstMs + 1);
  }

  /** The last event up to a time that changed anything that is shown. */
  offsetAt(timeMs: number): number {
    return this.#points[Math.max(0, lastUpTo(this.#points, timeMs, byTime))]?.at ?? 0;
  }
  timeOf(offset: number): number {
    return this.#points[Math.max(0, lastUpTo(this.#points, offset, byOffset))]?.timeMs ?? this.firstMs;
  }
  happened(timeMs: number): number {
    return lastUpTo(this.happenings, timeMs, byTime) + 1;
  }
  /** The time of the next decision, or of the one before. */
  decision(timeMs: number, direction: 1 | -1): number | undefined {
    const all = direction > 0 ? this.decisions : [...this.decisions].reverse();
    return all.find((one) => (one.timeMs - timeMs) * direction > 0)?.timeMs;
  }

  job(name: string): Played | undefined {
    return this.jobs.find((one) => one.job === name);
  }
  /** The state of a job at a time. */
  step(job: Played, timeMs: number): Step | undefined {
    return job.steps[lastUpTo(job.steps, timeMs, byTime)];
  }
  /** The latest explanation of this state up to a time, if it has one. */
  told(job: Played, step: Step, timeMs: number): Told | undefined {
    return job.told.findLast((one) => one.offset >= step.at && one.timeMs <= Math.max(timeMs, step.timeMs));
  }
  /** Whether pods of the job wait for nodes. */
  waits(step: Step | undefined): step is Step {
    return !!step?.waitingFor && step.placed < (step.desired ?? 0);
  }
  sample(timeMs: number): number {
    const { times } = this.facts.playback.series;
    return Math.max(0, lastUpTo(times, timeMs / 1000 + 1e-6, (time) => time));
  }
  /** The longest wait that is explained, of the job that was asked for, at the event of its explanation: where the page
   * opens. Where that job never waited so, at the last event about it. */
  telling(): { job: string; timeMs: number } | undefined {
    let best: { job: string; timeMs: number; longMs: number } | undefined;
    const asked = this.job(this.facts.playback.job ?? "");
    for (const job of asked ? [asked] : this.jobs) {
      job.steps.forEach((step, number) => {
        const longMs = (job.steps[number + 1]?.timeMs ?? this.lastMs) - step.timeMs;
        const told = this.told(job, step, step.timeMs + longMs / 2);
        if (!this.waits(step) || !told?.waiting?.shortfall || longMs <= (best?.longMs ?? 0)) return;
        best = { job: job.job, timeMs: told.timeMs, longMs };
      });
    }
    const last = asked?.steps.at(-1);
    return best ?? (asked && last && { job: asked.job, timeMs: last.timeMs });
  }
}
