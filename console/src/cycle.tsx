// The scheduling cycle at a point: what it took in, what it decided, and whether it gives the same again.
import { useState } from "preact/hooks";
import { ask } from "./api";
import { JobLink, Missing, Note, Point, Table } from "./parts";
import { settledAt, words } from "./store";
import type { Line, Verified } from "./types";
import { useAnswer, useAsking } from "./use";
import { clock, count, many, plain, shown } from "./words";

const BEFORE = 400;
const DECISIONS = new Set(["Placed", "Preempted", "Reserved", "StartForecast", "Waits"]);

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
      <Events lines={[...lines].reverse()} caption="Events, the newest first" none="There are no events here." />
    </>
  );
}

/** The decisions that follow a cycle, up to the first event that isn't one. */
function decided(lines: Line[]): Line[] {
  const end = lines.findIndex((one) => !DECISIONS.has(one.kind));
  return end < 0 ? lines : lines.slice(0, end);
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
        { name: "Time", cell: (line) => clock(line.timeMs / 1000), number: true, wide: true },
        { name: "Kind", cell: (line) => plain(line.kind) },
        { name: "Subject", cell: (line) => (line.job ? <JobLink job={line.job} /> : shown(line.subject)) },
        { name: "What", cell: (line) => `${shown(line.text)}${line.verdict ? ` (${line.verdict})` : ""}` },
      ]}
    />
  );
}

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
