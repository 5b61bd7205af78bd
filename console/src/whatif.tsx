// What a cycle would have decided with changes, beside what it did decide.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Parameters } from "./api";
import { Chart } from "./chart";
import { JobLink, Names, Note, Point, Table } from "./parts";
import { changes, moment, settledAt, words } from "./store";
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
// Those that Arranger brings; plugins may add more.
const QUEUE_POLICIES = ["Priority", "DRF"];
const POD_POLICIES = [
  ...["Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity", "MostAllocated"],
  ...["FragmentGradient"],
];
const jobs = (): string[] => moment.value?.jobs.map((one) => one.job) ?? [];
const nodes = (): string[] => moment.value?.nodes.map((one) => one.name) ?? [];
const FIELDS: Field[] = [
  { name: "changedJob", label: "Change job", hint: "namespace/name", known: jobs },
  { name: "priority", label: "Its priority", hint: "1 to 10" },
  { name: "queue", label: "Its queue", hint: "a queue's name" },
  { name: "gpus", label: "GPUs a pod", hint: "of pods that ask for any" },
  { name: "policy", label: "Pod policy", hint: "as it was", known: () => POD_POLICIES },
  { name: "queuePolicy", label: "Queue policy", hint: "as it was", known: () => QUEUE_POLICIES },
  { name: "weights", label: "Weights", hint: "such as cpu=1,accelerators=5" },
  { name: "preemption", label: "Preemption", hint: "", options: ["On", "Off"] },
  { name: "backfill", label: "Backfill", hint: "", options: ["On", "Off"] },
  { name: "reservations", label: "Reservations", hint: "a number of jobs" },
  { name: "without", label: "Without jobs", hint: "namespace/name, …", list: true, known: jobs },
  { name: "withoutNode", label: "Without nodes", hint: "names, …", list: true, known: nodes },
  { name: "withNode", label: "Added nodes", hint: "copies of: names, …", list: true, known: nodes },
  { name: "until", label: "Run on until", hint: "such as 1h, or drained" },
];

export function WhatIf() {
  const [answer, setAnswer] = useState<{ value?: Answer; problem?: string }>({});
  const [busy, setBusy] = useState(false);
  const begin = useAsking();
  const form = useRef<HTMLFormElement>(null);
  const asked = useRef("");
  const run = async (form: HTMLFormElement): Promise<void> => {
    setBusy(true);
    asked.current = changes.value = told(form);
    const { objects, ...query } = given(form);
    const { signal } = begin();
    const body = { signal, objects: String(objects ?? "") };
    try {
      setAnswer({ value: await ask<Answer>("what-if", { at: settledAt.value, ...query }, body) });
    } catch (caught) {
      if (!signal.aborted) setAnswer({ problem: words(caught) });
    } finally {
      setBusy(false);
    }
  };
  const there = settledAt.value > 0;
  useEffect(() => {
    // A link to a question asks it.
    if (!form.current || !there || !changes.value || changes.value === asked.current) return;
    fill(form.current, changes.value);
    void run(form.current);
  }, [changes.value, there]);
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
        {FIELDS.map((one) => (
          <label key={one.name}>
            <span>{one.label}</span>
            {one.options ? (
              <select name={one.name}>
                <option value="">as it was</option>
                {one.options.map((option) => (
                  <option key={option}>{option}</option>
                ))}
              </select>
            ) : (
              <Given field={one} />
            )}
          </label>
        ))}
        <label class="whole">
          <span>Added or changed jobs, nodes, pods and queues</span>
          <textarea name="objects" rows={4} placeholder="YAML, as for kubectl apply" spellcheck={false} autocomplete="off" />
        </label>
        <label class="check">
          <input type="checkbox" name="everyJob" value="true" /> also jobs that name a policy
        </label>
        <button type="submit" class="main" disabled={busy || !settledAt.value}>
          {busy ? "Working it out …" : "Ask"}
        </button>
      </form>
      {answer.problem && <Note bad>{shown(answer.problem)}</Note>}
      {answer.value ? (
        <Result value={answer.value} />
      ) : (
        !answer.problem && <Note>Change something, and see the cycle at this point as it was and as it would have been.</Note>
      )}
    </>
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
  return (
    <section aria-label="What if" class="results">
      <p class="lead">
        {value.cycle ? (
          <>
            The cycle at <Point at={value.cycle} />
          </>
        ) : (
          <>
            A cycle after event <Point at={value.base} />
          </>
        )}
        , as it was, and otherwise: {shown(value.otherwise) || "nothing changed"}.
        {value.reproduced === false && " The recorded decision isn't reproduced."}
      </p>
      <div class="beside">
        <Side title="As it was" outcome={value.asItWas} course={course?.asItWas} />
        <Side title="What if" outcome={value.whatIf} course={course?.whatIf} />
      </div>
      <h3>What differs in this cycle</h3>
      <Table
        caption="Jobs for which it differs"
        rows={value.differences}
        none="In this cycle, the same jobs get the same nodes."
        columns={[
          { name: "Job", cell: (one) => <JobLink job={one.job} />, key: (one) => one.job },
          { name: "As it was", cell: (one) => got(one.one) },
          { name: "What if", cell: (one) => got(one.other) },
        ]}
      />
      {course && (
        <>
          <h3>Starts that differ</h3>
          <Table
            caption="Starts that differ"
            rows={course.starts}
            none="Up to the end, all jobs start at the same times."
            columns={[
              { name: "Job", cell: (one) => <JobLink job={one.job} />, key: (one) => one.job },
              { name: "Attempt", cell: (one) => one.attempt, number: true, wide: true },
              { name: "As it was", cell: (one) => begins(one.asItWasMs), key: (one) => one.asItWasMs ?? Infinity, number: true },
              { name: "What if", cell: (one) => begins(one.whatIfMs), key: (one) => one.whatIfMs ?? Infinity, number: true },
              { name: "Later by", cell: later, number: true },
              { name: "Waited", cell: (one) => waited(one.asItWasWaitMs), number: true, wide: true },
              { name: "Waited, what if", cell: (one) => waited(one.whatIfWaitMs), number: true, wide: true },
            ]}
          />
        </>
      )}
      {course && (
        <p class="faint">
          Both columns are runs of Arranger's own cycles from this point on. Jobs run as long as they did in the log; what
          has no end there runs to the end, and a job that is preempted begins another attempt.
        </p>
      )}
      {course && <Courses one={course.asItWas} other={course.whatIf} />}
    </section>
  );
}

const waited = (ms: number | null): string => (ms === null ? "–" : duration(ms / 1000));
const begins = (timeMs: number | null): string => (timeMs === null ? "no such start" : clock(timeMs / 1000));

function later(of: { asItWasMs: number | null; whatIfMs: number | null }): string {
  if (of.asItWasMs === null || of.whatIfMs === null) return "–";
  const seconds = (of.whatIfMs - of.asItWasMs) / 1000;
  return `${seconds < 0 ? "−" : ""}${duration(Math.abs(seconds))}`;
}

function got(job: WhatIfJob | null): string {
  if (!job) return "not there";
  const nodes = Object.entries(job.nodes).map(([node, pods]) => `${shown(node)}: ${pods}`);
  const placed = `${count(job.held + job.placed)} of ${count(job.desired)} pods`;
  return nodes.length ? `${placed}; ${nodes.slice(0, 4).join("; ")}` : `${placed}; ${shown(job.waits)}`;
}

function Side({ title, outcome, course }: { title: string; outcome: Outcome; course: Course | undefined }) {
  return (
    <div class="side">
      <h3>{title}</h3>
      <dl class="pairs">
        <dt>Queue policy</dt>
        <dd>{outcome.queuePolicy}</dd>
        <dt>Pod policy</dt>
        <dd>{outcome.podPolicy}</dd>
        <dt>Pods placed</dt>
        <dd>{count(outcome.pods)}</dd>
        <dt>Given</dt>
        <dd>{outcome.given || "nothing"}</dd>
        <dt>Jobs that wait after this cycle</dt>
        <dd>{count(outcome.waiting)}</dd>
        {course && (
          <>
            <dt>Jobs started by the end</dt>
            <dd>{count(course.started)}</dd>
            <dt>Jobs ended by the end</dt>
            <dd>{count(course.ended)}</dd>
            <dt>Mean wait</dt>
            <dd>{duration(course.waitMeanMs / 1000)}</dd>
            <dt>Wait, 95th percentile</dt>
            <dd>{duration(course.waitP95Ms / 1000)}</dd>
            <dt>Waiting at the end</dt>
            <dd>{many(course.waitingAtEnd, "job")}</dd>
          </>
        )}
      </dl>
    </div>
  );
}

function Courses({ one, other }: { one: Course; other: Course }) {
  const times = [...new Set([...one.curve, ...other.curve].map((point) => point.timeMs / 1000))].sort((a, b) => a - b);
  const most = [one, other].map((run) => Math.max(...run.curve.map((point) => point.gpus)));
  if (times.length < 2) return <Note>Both runs end at once: there is no course over time.</Note>;
  return (
    <>
      <h3>GPUs used over time</h3>
      <Chart
        label="GPUs used in both runs over time"
        times={times}
        lines={[
          { name: "as it was", values: along(one, times), colour: "#0072b2" },
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
    const end = course.curve.at(-1)?.timeMs ?? 0;
    return time > end / 1000 ? null : (course.curve[next]?.gpusUsed ?? null);
  });
}
