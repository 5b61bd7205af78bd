// What happened to a job, folded by cause: times in which it was in one stage, each with the decisions that began it,
// what it waited for and how long, and its events; the latest first.
import { useState } from "preact/hooks";
import { Consequence, NobodyKnown } from "./explained";
import { Brief, Note, Point } from "./parts";
import { Stage } from "./jobs";
import { until } from "./store";
import type { Explained, Life } from "./types";
import { clock, duration, kindOf, many, plain, shown } from "./words";

type Event = Life["life"][number];

interface Fold {
  stage: string;
  /** What it waited for without numbers, which change → the last words of it, and how long in milliseconds. */
  causes: Map<string, { words: string; ms: number }>;
  /** Whether it waits at the point that is shown. */
  waits: boolean;
  sinceOffset: number;
  sinceMs: number;
  untilMs: number;
  lasts: boolean;
  decisions: Explained["consequences"];
  events: Event[];
}

/** How many folds are shown at once. */
const FOLDS = 6;

export function History({ life, explained }: { life: Life; explained?: Explained | undefined }) {
  const [all, setAll] = useState(false);
  const events = news(life.life);
  if (!events.length) return <Note>Nothing happened to this job up to this point.</Note>;
  const folds = explained ? folded(explained, events).reverse() : [];
  return (
    <>
      <h3>History</h3>
      {life.left > 0 && <p class="faint">{many(life.left, "older event")} of it aren't shown.</p>}
      {folds.length > 0 ? (
        <ol class="folds">
          {folds.slice(0, all ? folds.length : FOLDS).map((one) => (
            <li key={one.sinceMs}>
              <div>
                <Point at={one.sinceOffset}>{clock(one.sinceMs / 1000)}</Point> <Stage job={one} /> {spent(one)}
              </div>
              {awaited(one) && <Brief>{awaited(one)}</Brief>}
              {one.decisions.map((of, place) => (
                <div key={of.offset}>
                  <Consequence of={of} before={one.decisions[place - 1]} />
                </div>
              ))}
              <details>
                <summary>{many(one.events.length, "event")}</summary>
                <Events of={one.events} />
              </details>
            </li>
          ))}
        </ol>
      ) : (
        <Events of={events} />
      )}
      {!all && folds.length > FOLDS && (
        <button type="button" onClick={() => setAll(true)}>
          {many(folds.length - FOLDS, "earlier state")}
        </button>
      )}
      {explained?.consequences.some((one) => one.causes.length > 0) && <NobodyKnown />}
    </>
  );
}

/** The times in one stage: from a decision on that ended or interrupted the job, another time begins. */
function folded(explained: Explained, events: Event[]): Fold[] {
  const folds: Fold[] = [];
  explained.intervals.forEach((one, place) => {
    const end = explained.intervals[place + 1]?.sinceOffset ?? Infinity;
    const within = (offset: number): boolean => (place === 0 || offset >= one.sinceOffset) && offset < end;
    const decisions = explained.consequences.filter((of) => within(of.offset));
    const mine = events.filter((of) => within(of.at));
    let last = folds.at(-1);
    // What passes at once is no time of its own.
    const passed = last && !last.decisions.length && last.untilMs - last.sinceMs < 1000;
    if (last && passed && last.stage !== one.stage && !decisions.length) Object.assign(last, { stage: one.stage, sinceMs: one.sinceMs });
    if (!last || last.stage !== one.stage || decisions.length) {
      folds.push((last = { ...one, causes: new Map(), waits: false, decisions, events: [] }));
    }
    last.events.push(...mine);
    // What lasts goes on though no event comes.
    const untilMs = one.lasts ? Math.max(until(one.untilMs / 1000) * 1000, one.untilMs) : one.untilMs;
    Object.assign(last, { untilMs, lasts: one.lasts, waits: one.lasts && !!one.waitingFor });
    if (!one.waitingFor) return;
    const cause = one.waitingFor.replace(/\d+/g, "");
    last.causes.set(cause, { words: one.waitingFor, ms: (last.causes.get(cause)?.ms ?? 0) + untilMs - one.sinceMs });
  });
  return folds;
}

/** What it waited for, the longest first; what passed at once isn't told. */
function awaited(one: Fold): string {
  const longest = [...one.causes.values()].filter(({ ms }) => ms >= 1000).sort((a, b) => b.ms - a.ms);
  const words = longest.map(({ words, ms }) => `${shown(words)} (${duration(ms / 1000)})`);
  if (!words.length) return "";
  return `${one.waits ? "waits" : "waited"} for ${words.join("; for ")}`;
}

function spent(one: Fold): string {
  const ms = Math.max(one.untilMs - one.sinceMs, 0);
  if (one.lasts && (one.stage === "Succeeded" || one.stage === "Failed")) return `${duration(ms / 1000)} ago`;
  return `for ${duration(ms / 1000)}${one.lasts ? " so far" : ""}`;
}

/** The events without those in which the job was seen as it was before. */
function news(life: Event[]): Event[] {
  let seen = "";
  return life.filter((one) => {
    if (one.kind !== "JobSeen") return true;
    const before = seen;
    seen = one.words;
    return one.words !== before;
  });
}

function Events({ of }: { of: Event[] }) {
  return (
    <ol class="story" tabIndex={0} aria-label="Events of the job">
      {of.map((one, place) => (
        <li key={place}>
          <span class="when">
            {clock(one.time)} <Point at={one.at} />
          </span>
          <Brief>
            <span class="kind">{one.gives ? plain(one.kind) : kindOf(one.kind)}</span> {shown(one.words)}
          </Brief>
        </li>
      ))}
    </ol>
  );
}
