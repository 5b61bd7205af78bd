// The scheduling cycle at a point: what it took in, what it decided, and whether it gives the same again.
import { signal, type Signal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { ask } from "./api";
import { AsOf, JobLink, Missing, Names, Note, Point, Table } from "./parts";
import { moment, settledAt, timeline, words } from "./store";
import type { Line, Verified } from "./types";
import { useAnswer, useAsking } from "./use";
import { clock, count, kindOf, many, shown } from "./words";

const BEFORE = 400;
const DECISIONS = new Set(["Placed", "Preempted", "Reserved", "LimitKept", "StartForecast", "Waits"]);

export function Cycle() {
  const offset = settledAt.value;
  const answer = useAnswer<Line[]>(offset ? "events" : "", { from: Math.max(1, offset - BEFORE), to: offset });
  const lines = answer.value;
  if (!lines) return <Missing {...answer} none="The log is empty." />;
  const start = lines.findLastIndex((one) => one.kind === "CycleTaken");
  const cycle = start < 0 ? undefined : lines[start];
  const decisions = cycle ? decided(lines.slice(start + 1)) : [];
  return (
    <>
      <AsOf at={answer.of.to} />
      {cycle ? (
        <>
          <h2>
            The cycle at <Point at={cycle.offset} />
          </h2>
          <p class="lead">
            {clock(cycle.timeMs / 1000)}: {shown(cycle.text) || "a cycle was taken"}
            {cycle.verdict && ` (${cycle.verdict})`}
          </p>
          <Events lines={decisions} caption="What it decided" none="It decided nothing up to this point." />
        </>
      ) : (
        <Note>No cycle among the last {count(BEFORE)} events before this point.</Note>
      )}
      <Verify to={offset} />
      <h3>The events before this point</h3>
      <Listing to={offset} />
    </>
  );
}

/** The decisions that follow a cycle, up to the first event that isn't one. */
function decided(lines: Line[]): Line[] {
  const end = lines.findIndex((one) => !DECISIONS.has(one.kind));
  return end < 0 ? lines : lines.slice(0, end);
}

/** Kinds of events to choose from, with those that were met. */
const KINDS = new Set([
  ...["JobSeen", "JobGone", "PodSeen", "PodGone", "NodeSeen", "NodeGone", "CycleTaken", "Placed", "Preempted", "Reserved"],
  ...["Waits", "StageDecided"],
]);
const kind = signal("");
const about = signal("");
const name = signal("");
const reach = signal(String(BEFORE));

/** The events up to a point: all, or those of a kind, or about one job, node, pod or queue. */
function Listing({ to }: { to: number }) {
  const from = reach.value ? Math.max(1, to - Number(reach.value) + 1) : 0;
  const subject = about.value && name.value ? { [about.value]: name.value } : {};
  const answer = useAnswer<Line[]>("events", { from: from || timeline.value?.first, to, kind: kind.value, ...subject });
  const lines = useMemo(() => [...(answer.value ?? [])].reverse(), [answer.value]);
  const kinds = useMemo(() => {
    for (const one of lines) KINDS.add(one.kind);
    return [...KINDS].sort();
  }, [lines]);
  return (
    <>
      <div class="controls">
        <label>
          Kind{" "}
          <select value={kind.value} onChange={(event) => (kind.value = event.currentTarget.value)}>
            <option value="">all</option>
            {kinds.map((one) => (
              <option key={one} value={one}>
                {kindOf(one)}
              </option>
            ))}
          </select>
        </label>
        <label>
          About{" "}
          <select value={about.value} onChange={(event) => (about.value = event.currentTarget.value)}>
            <option value="">everything</option>
            {["job", "node", "pod", "queue"].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        {about.value && (
          <label>
            Its name <Known of={name} id="names" known={namesOf(about.value)} hint={about.value === "job" ? "namespace/name" : "name"} />
          </label>
        )}
        <label>
          Among{" "}
          <select value={reach.value} onChange={(event) => (reach.value = event.currentTarget.value)}>
            {[BEFORE, BEFORE * 10, BEFORE * 100].map((one) => (
              <option key={one} value={String(one)}>
                the last {count(one)}
              </option>
            ))}
            <option value="">all of the log</option>
          </select>
        </label>
        <span class="faint" role="status">
          {answer.value ? many(lines.length, "event") : "…"}
        </span>
      </div>
      <AsOf at={answer.of.to} />
      {answer.problem && !answer.value ? (
        <Missing {...answer} none="" />
      ) : (
        <Events lines={lines} caption="Events, the newest first" none={answer.busy ? "The answer is being worked out …" : "No event matches."} />
      )}
    </>
  );
}

function namesOf(sort: string): string[] {
  const now = moment.value;
  if (sort === "job") return now?.jobs.map((one) => one.job) ?? [];
  const named = sort === "node" ? now?.nodes : sort === "queue" ? now?.queues : [];
  return named?.map((one) => one.name) ?? [];
}

function Known(props: { of: Signal<string>; id: string; known: readonly string[]; hint: string }) {
  return (
    <>
      <input
        list={props.id}
        value={shown(props.of.value)}
        placeholder={props.hint}
        onChange={(event) => (props.of.value = event.currentTarget.value.trim())}
      />
      <Names id={props.id} names={props.known} />
    </>
  );
}

function Events({ lines, caption, none }: { lines: Line[]; caption: string; none: string }) {
  return (
    <Table
      caption={caption}
      rows={lines}
      rowsInSight={12}
      none={none}
      columns={[
        { name: "Event", cell: (line) => <Point at={line.offset} />, number: true },
        { name: "Time", cell: (line) => clock(line.timeMs / 1000), number: true },
        { name: "Kind", cell: (line) => kindOf(line.kind) },
        { name: "Subject", cell: subject },
        { name: "What", cell: (line) => `${shown(line.text)}${line.verdict ? ` (${line.verdict})` : ""}` },
      ]}
    />
  );
}

/** What an event is about; its job has the link, also that of a pod. */
const subject = (line: Line) => (line.job ? <JobLink job={line.job}>{line.subject}</JobLink> : shown(line.subject) || "–");

function Verify({ to }: { to: number }) {
  const [result, setResult] = useState<{ to: number; value?: Verified; problem?: string } | null>(null);
  const [busy, setBusy] = useState(false);
  const begin = useAsking();
  const run = async (): Promise<void> => {
    setBusy(true);
    const { signal } = begin();
    try {
      setResult({ to, value: await ask<Verified>("verify", { to }, { signal }) });
    } catch (caught) {
      if (!signal.aborted) setResult({ to, problem: words(caught) });
    } finally {
      setBusy(false);
    }
  };
  const value = result?.value;
  return (
    <div class="controls" role="status">
      <button type="button" disabled={busy} onClick={() => void run()}>
        {busy ? "Verifying …" : "Verify now"}
      </button>
      {result?.problem && <span class="bad">{shown(result.problem)}</span>}
      {value && (
        <span class={value.sound ? "good" : "bad"}>
          {value.sound ? "Sound" : "Not sound"}: {count(value.identical)} of {many(value.cycles, "cycle")} with{" "}
          {many(value.decisions, "decision")} give the same again, up to event {count(result.to)}.
        </span>
      )}
      {!result && !busy && <span class="faint">Computes every cycle up to this point again, and compares.</span>}
    </div>
  );
}
