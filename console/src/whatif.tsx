// What a cycle would have decided with changes, beside what it did decide.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Parameters } from "./api";
import { Chart } from "./chart";
import { JobLink, Names, Note, Point, Table } from "./parts";
import { POD_POLICIES, QUEUE_POLICIES } from "./policies";
import { changes, chosen, moment, settled, settledAt, settledPoint, words } from "./store";
import type { Course, Outcome, WhatIf as Answer, WhatIfJob } from "./types";
import { useAsking } from "./use";
import { amount, clock, count, duration, many, shown } from "./words";

interface Field {
  name: string;
  label: string;
  hint: string;
  options?: readonly string[];
  list?: boolean;
  /** Values to choose from; others may be given as well. */
  known?: () => readonly string[];
}
const jobs = (): string[] => moment.value?.jobs.map((one) => one.job) ?? [];
const nodes = (): string[] => moment.value?.nodes.map((one) => one.name) ?? [];
const queues = (): string[] => moment.value?.queues.map((one) => one.name) ?? [];
/** What is asked most. */
const FIRST: Field[] = [
  { name: "changedJob", label: "Job", hint: "namespace/name", known: jobs },
  { name: "priority", label: "Its priority", hint: "as it was; 1 to 10" },
  { name: "gpus", label: "GPUs of each of its pods", hint: "as it was" },
  { name: "queue", label: "Its queue", hint: "as it was", known: queues },
  { name: "policy", label: "Pod policy", hint: "as it was", known: () => POD_POLICIES },
  { name: "queuePolicy", label: "Queue policy", hint: "as it was", known: () => QUEUE_POLICIES },
];
const FURTHER: Field[] = [
  { name: "until", label: "Run on until", hint: "such as 1h, or drained" },
  { name: "preemption", label: "Preemption", hint: "", options: ["On", "Off"] },
  { name: "backfill", label: "Backfill", hint: "", options: ["Guests", "Known", "Off"] },
  { name: "reservations", label: "Reservations", hint: "a number of jobs" },
  { name: "weights", label: "Weights", hint: "cpu=1,*/gpu=5" },
  { name: "without", label: "Without jobs", hint: "namespace/name, …", list: true, known: jobs },
  { name: "withoutNode", label: "Without nodes", hint: "names, …", list: true, known: nodes },
  { name: "withNode", label: "Added nodes", hint: "copies of: names, …", list: true, known: nodes },
];
const FIELDS = [...FIRST, ...FURTHER];

export function WhatIf() {
  const [answer, setAnswer] = useState<{ value?: Answer; problem?: string }>({});
  const [busy, setBusy] = useState(false);
  const begin = useAsking();
  const form = useRef<HTMLFormElement>(null);
  const further = useRef<HTMLDetailsElement>(null);
  const asked = useRef("");
  const run = async (form: HTMLFormElement): Promise<void> => {
    asked.current = changes.value = told(form);
    const { objects, ...query } = given(form);
    const lacks = incomplete(query, !!objects);
    if (lacks) return setAnswer({ problem: lacks });
    setBusy(true);
    setAnswer(({ value }) => (value ? { value } : {}));
    const { signal } = begin();
    const body = { signal, objects: String(objects ?? "") };
    try {
      setAnswer({ value: await ask<Answer>("what-if", { at: settledPoint.value, ...query }, body) });
    } catch (caught) {
      if (!signal.aborted) setAnswer({ problem: ofFields(words(caught)) });
    } finally {
      setBusy(false);
    }
  };
  const there = settled.value;
  useEffect(() => {
    // A link to a question asks it.
    if (!form.current || !there || !changes.value || changes.value === asked.current) return;
    fill(form.current, changes.value);
    const given = [...new URLSearchParams(changes.value).keys()];
    if (further.current && given.some((name) => !FIRST.some((one) => one.name === name))) further.current.open = true;
    void run(form.current);
  }, [changes.value, there]);
  useEffect(() => {
    // The job that was looked at is the one to be changed.
    if (form.current && !changes.value && chosen.value) fill(form.current, new URLSearchParams({ changedJob: chosen.value }).toString());
  }, []);
  return (
    <>
      <form
        ref={form}
        class="question"
        onSubmit={(event) => {
          event.preventDefault();
          void run(event.currentTarget);
        }}
      >
        {FIRST.map((one) => (
          <Labelled key={one.name} field={one} />
        ))}
        <details class="whole" ref={further}>
          <summary>More to change: preemption, reservations, nodes, other jobs, a longer run</summary>
          <div class="fields">
            {FURTHER.map((one) => (
              <Labelled key={one.name} field={one} />
            ))}
            <label class="whole">
              <span>Added or changed jobs, nodes, pods and queues</span>
              <textarea name="objects" rows={4} placeholder="YAML, as for kubectl apply" spellcheck={false} autocomplete="off" />
            </label>
            <label class="check whole">
              <input type="checkbox" name="everyJob" value="true" /> policies also for jobs that name one
            </label>
          </div>
        </details>
        <button type="submit" class="main" disabled={busy || !settledAt.value}>
          {busy ? "Working it out …" : "Ask"}
        </button>
      </form>
      {answer.problem && <Note bad>{shown(answer.problem)}</Note>}
      {answer.value ? (
        <Result value={answer.value} />
      ) : (
        !answer.problem && !busy && <Note>Change something, and see the cycle at this point as it was and as it would have been.</Note>
      )}
    </>
  );
}

function Labelled({ field }: { field: Field }) {
  return (
    <label class={field.name === "changedJob" ? "broad" : undefined}>
      <span>{field.label}</span>
      {field.options ? (
        <select name={field.name}>
          <option value="">as it was</option>
          {field.options.map((option) => (
            <option key={option}>{option}</option>
          ))}
        </select>
      ) : (
        <Given field={field} />
      )}
    </label>
  );
}

/** A field with a list of what may be given; in a list of names, it completes the last one. */
function Given({ field }: { field: Field }) {
  const [before, setBefore] = useState("");
  return (
    <>
      <input
        type="text"
        name={field.name}
        placeholder={field.hint}
        autocomplete="off"
        list={`known-${field.name}`}
        onInput={({ currentTarget }) => setBefore(field.list ? currentTarget.value.replace(/[^,]*$/, "") : "")}
      />
      {field.known && <Names id={`known-${field.name}`} names={field.known()} after={before} />}
    </>
  );
}

const OF_JOB = ["priority", "gpus", "queue"];

/** What the form lacks, in its own words. A job of which nothing changes is left out beside other changes. */
function incomplete(query: Parameters, objects: boolean): string {
  const changed = OF_JOB.some((name) => query[name]);
  if (changed && !query.changedJob) return "Choose a job: its priority, GPUs or queue are to change.";
  if (changed || !query.changedJob) return "";
  if (!objects && Object.keys(query).length === 1) return `Say what of ${String(query.changedJob)} changes: its priority, GPUs or queue.`;
  delete query.changedJob;
  return "";
}

/** A refusal with the names of fields instead of those of parameters. */
function ofFields(refusal: string): string {
  const label = (name: string): string => FIELDS.find((one) => one.name === name)?.label ?? name;
  return refusal
    .replace(/^Invalid value for (\w+)/, (_, name: string) => label(name))
    .replace(/^\w+: (.*) can't be used, from flag (\w+)/, (_, value: string, name: string) => `${label(name)}: ${value} can't be used`)
    .replace(/ \(arranger \w+ lists the \w+\)$/, "")
    .replace(/^the body(?::(\d+))?/, (_, line?: string) => (line ? `Line ${line} of the added or changed objects` : "The added or changed objects"));
}

/** What the form says, for the address. */
function told(form: HTMLFormElement): string {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (String(value).trim()) query.set(name, String(value));
  return query.toString();
}

function fill(form: HTMLFormElement, from: string): void {
  for (const [name, value] of new URLSearchParams(from)) {
    const field = form.elements.namedItem(name);
    if (field instanceof HTMLInputElement && field.type === "checkbox") field.checked = value === field.value;
    else if (field && "value" in field) field.value = value;
  }
}

function given(form: HTMLFormElement): Parameters {
  const query: Record<string, string | string[]> = {};
  for (const [name, value] of new FormData(form)) {
    const text = String(value).trim();
    if (!text) continue;
    const list = FIELDS.find((one) => one.name === name)?.list;
    query[name] = list ? text.split(/[\s,]+/).filter(Boolean) : text;
  }
  return query;
}

function Result({ value }: { value: Answer }) {
  const course = value.until;
  const [endless, waits] = (["endlessJobs", "waitingJobs"] as const).map((of) =>
    course ? [...new Set([...course.asItWas[of], ...course.whatIf[of]])] : [],
  ) as [string[], string[]];
  const differ = sums(value.asItWas, value.whatIf, OF_CYCLES);
  const inRuns = course ? sums(course.asItWas, course.whatIf, OF_RUNS) : [];
  const first = untried(value.asItWas).filter((name) => untried(value.whatIf).includes(name));
  const changed = value.whatIf.jobs.find((one) => one.job === value.changedJob);
  const alike = value.differences.some((one) => one.job === value.changedJob) ? undefined : changed;
  const reasonOnly = (of: Difference) => of.job !== value.changedJob && of.differs.every((field) => field === "waits" || field === "queue");
  const reasons = value.differences.filter(reasonOnly);
  const same = !differ.length && !inRuns.length && !value.differences.length && !course?.starts.length;
  return (
    <section aria-label="What if" class="results">
      <p class="lead">
        {value.cycle ? (
          <>
            The cycle at <Point at={value.cycle} />, taken on the state at <Point at={value.base} />
          </>
        ) : (
          <>
            A cycle after event <Point at={value.base} />
          </>
        )}
        , as it was, and otherwise: {shown(value.otherwise) || "nothing changed"}.
        {value.reproduced === false && " The recorded decision isn't reproduced."}
      </p>
      {same && (
        <Note>
          Nothing differs: the same jobs get the same nodes{course && ", and start at the same times up to the end"}.
        </Note>
      )}
      {alike && (
        <p>
          <JobLink job={alike.job} /> in both: {got(alike)}.
        </p>
      )}
      {(differ.length > 0 || value.differences.length > 0) && <h3>What differs in this cycle</h3>}
      <Sums caption="Sums of the cycle that differ" of={differ} unchanged="As it was" />
      <Differences caption="Jobs for which it differs" rows={value.differences.filter((one) => !reasonOnly(one))} />
      {reasons.length > 0 && (
        <details>
          <summary>{many(reasons.length, "job")} with the same nodes in both, for another reason or in another order</summary>
          <Differences caption="Jobs with the same nodes in both" rows={reasons} />
        </details>
      )}
      {value.differences.some((one) => one.one?.roomFrom.length || one.other?.roomFrom.length) && (
        <p class="faint">Work lost is GPU time of running pods since they started, start-up included, or since the last checkpoint of their job.</p>
      )}
      {value.supposed.length > 0 && (
        <p class="faint">
          Supposed: in a dry run, the API server takes the pods of {some(value.supposed)}; nobody had asked it yet.
        </p>
      )}
      {first.length > 0 && (
        <p class="faint">
          In both plans, others give room to {some(first)} only after a dry run, which nobody had made yet.
        </p>
      )}
      {value.afterDryRuns.map((one) => (
        <p class="faint" key={one.job}>
          Once that is made, <JobLink job={one.job} /> gets something else with the changes: {got(one)}.
        </p>
      ))}
      {course && (
        <>
          {inRuns.length > 0 && <h3>What differs in the runs from then on</h3>}
          <Sums caption="Sums of the runs that differ" of={inRuns} unchanged="Without changes" />
          {course.starts.length > 0 && <h3>Starts that differ</h3>}
          <Table
            caption="Starts that differ"
            rows={course.starts}
            columns={[
              { name: "Job", cell: (one) => <JobLink job={one.job} />, key: (one) => one.job },
              { name: "Attempt", cell: (one) => one.attempt, number: true },
              { name: "Without changes", cell: (one) => begins(one.asItWasMs), key: (one) => one.asItWasMs ?? Infinity, number: true },
              { name: "What if", cell: (one) => begins(one.whatIfMs), key: (one) => one.whatIfMs ?? Infinity, number: true },
              { name: "Later by", cell: later, number: true },
              { name: "Waited", cell: (one) => waited(one.asItWasWaitMs), number: true },
              { name: "Waited, what if", cell: (one) => waited(one.whatIfWaitMs), number: true },
            ]}
          />
        </>
      )}
      {course && (
        <p class="faint">
          Both are runs of Arranger's own cycles from this point on. Jobs run as long as they did in the log; what
          has no end there runs to the end, and a job that is preempted begins another attempt.
          {endless.length > 0 && ` The log shows no end of ${some(endless)}: they keep their nodes to the end of the run.`}
          {waits.length > 0 && ` Still waiting at its end: ${some(waits)}.`}
        </p>
      )}
      {course && JSON.stringify(course.asItWas.curve) !== JSON.stringify(course.whatIf.curve) && <Courses one={course.asItWas} other={course.whatIf} />}
    </section>
  );
}

type Difference = Answer["differences"][number];

function Differences({ caption, rows }: { caption: string; rows: readonly Difference[] }) {
  return (
    <Table
      caption={caption}
      rows={rows}
      rowsInSight={40}
      columns={[
        { name: "Job", cell: (one) => <JobLink job={one.job} />, key: (one) => one.job },
        { name: "As it was", cell: (one) => got(one.one, one.other), half: true },
        { name: "What if", cell: (one) => got(one.other, one.one), half: true },
      ]}
    />
  );
}

const untried = (of: Outcome): string[] => of.jobs.filter((one) => one.untried).map((one) => one.job);

/** Names of jobs for a sentence, not more than a few. */
const some = (names: readonly string[]): string => shown(names.slice(0, 5).join(", ")) + (names.length > 5 ? ` and ${count(names.length - 5)} more` : "");

const waited = (ms: number | null): string => (ms === null ? "–" : duration(ms / 1000));
const begins = (timeMs: number | null): string => (timeMs === null ? "no such start" : clock(timeMs / 1000));

function later(of: { asItWasMs: number | null; whatIfMs: number | null }): string {
  if (of.asItWasMs === null || of.whatIfMs === null) return "–";
  const seconds = (of.whatIfMs - of.asItWasMs) / 1000;
  return `${seconds < 0 ? "−" : ""}${duration(Math.abs(seconds))}`;
}

/** What a job gets. Beside what it gets in the other plan, a position that differs comes first, as do nodes, so that two
 * texts of what differs are never alike. */
function got(job: WhatIfJob | null, other: WhatIfJob | null = null): string {
  if (!job) return "not there";
  const alike = ([node, pods]: [string, string]): number => +(other?.nodes[node] === pods);
  const ordered = Object.entries(job.nodes).sort((one, next) => alike(one) - alike(next));
  const nodes = ordered.map(([node, pods]) => `${shown(node)}: ${pods}`);
  const position = other && other.queue !== job.queue ? [job.queue ? `position ${count(job.queue)}` : "no position"] : [];
  const placed = `${count(job.held + job.placed)} of ${count(job.desired)} pods`;
  if (nodes.length > 4) nodes.splice(4, nodes.length, many(nodes.length - 4, "more node"));
  const room = job.roomFrom.length ? [`room from ${job.roomFrom.map(shown).join("; ")}`] : [];
  return [...position, placed, ...nodes, ...room, ...(job.waits ? [`waits: ${shown(job.waits)}`] : [])].join("; ");
}

interface Sum {
  name: string;
  unchanged: string;
  whatIf: string;
}
type Figures<T> = readonly (readonly [string, (of: T) => string])[];

const OF_CYCLES: Figures<Outcome> = [
  ["Default queue policy", (one) => one.queuePolicy],
  ["Default pod policy", (one) => one.podPolicy],
  ["Pods placed", (one) => count(one.pods)],
  ["Given", (one) => one.given || "nothing"],
  ["Jobs that give room", (one) => some(one.preempted) || "none"],
  ["Jobs that wait after this cycle", (one) => count(one.waiting)],
];
const OF_RUNS: Figures<Course> = [
  ["Jobs started by the end", (one) => count(one.started)],
  ["Jobs ended by the end", (one) => count(one.ended)],
  ["Mean wait", (one) => duration(one.waitMeanMs / 1000)],
  ["Wait, 95th percentile", (one) => duration(one.waitP95Ms / 1000)],
  ["Jobs waiting at the end", (one) => count(one.waitingAtEnd)],
];

/** The sums of two cycles, or of two runs, that differ. */
function sums<T>(unchanged: T, whatIf: T, figures: Figures<T>): Sum[] {
  const found = figures.map(([name, of]) => ({ name, unchanged: of(unchanged), whatIf: of(whatIf) }));
  return found.filter((one) => one.unchanged !== one.whatIf);
}

/** Sums that differ. The cycle without changes is `As it was`; a run is none that was, though its cycles are as usual. */
function Sums({ caption, of, unchanged }: { caption: string; of: readonly Sum[]; unchanged: string }) {
  return (
    <Table
      caption={caption}
      rows={of}
      columns={[
        { name: "What", cell: (one) => one.name },
        { name: unchanged, cell: (one) => one.unchanged, half: true },
        { name: "What if", cell: (one) => one.whatIf, half: true },
      ]}
    />
  );
}

function Courses({ one, other }: { one: Course; other: Course }) {
  const moments = [one, other].flatMap((run) => [...run.curve.map((point) => point.timeMs), run.endMs]);
  const times = [...new Set(moments.map((ms) => ms / 1000))].sort((a, b) => a - b);
  const most = [one, other].map((run) => Math.max(...run.curve.map((point) => point.gpus)));
  if (times.length < 2) return <Note>Both runs end at once: there is no course over time.</Note>;
  return (
    <>
      <h3>GPUs used over time</h3>
      <Chart
        label="GPUs used in both runs over time"
        times={times}
        lines={[
          { name: "without changes", values: along(one, times), colour: "#0072b2" },
          { name: "what if", values: along(other, times), colour: "#d55e00", dashed: true },
        ]}
      />
      <p class="faint">
        Of {amount(most[0])} GPUs{most[0] !== most[1] && `, and ${amount(most[1])} in what if`}; each line ends where its
        run ends.
      </p>
    </>
  );
}

/** The use at each of the times; none after the end of the run. */
function along(course: Course, times: readonly number[]): (number | null)[] {
  let next = 0;
  return times.map((time) => {
    while (next + 1 < course.curve.length && course.curve[next + 1]!.timeMs / 1000 <= time) next++;
    return time > course.endMs / 1000 ? null : (course.curve[next]?.gpusUsed ?? null);
  });
}
