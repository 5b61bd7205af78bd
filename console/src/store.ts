// What all views share: the point in the log, the view, and the answer about that point.
import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { ask, epoch, lost, now, passes, Refused, token, watch } from "./api";
import type { Moment, Timeline } from "./types";

export const VIEWS = ["overview", "cluster", "jobs", "gantt", "job", "queues", "cycle", "what-if"] as const;
export type View = (typeof VIEWS)[number];

/** The offset that every view shows; 0: the end of the log, as it grows. */
export const at = signal(0);
/** The time as of which that point is shown, in milliseconds since 1970; 0: that of its event. */
const seenMs = signal(0);
/** A point for questions and addresses: an offset, with the time up to which is counted if it isn't that of its event. */
const pointOf = (offset: number, timeMs: number): string => (timeMs ? `${offset}@${timeMs}` : String(offset));
/** The point that every view shows; empty: the end of the log, as it grows. */
const shownPoint = computed(() => (at.value ? pointOf(at.value, seenMs.value) : ""));
export const view = signal<View>("overview");
/** What the address names as a view though there is none of this name; the overview is shown. */
export const noView = signal("");
/** The job of the view of one job, as namespace/name. */
export const chosen = signal("");
/** What the what-if changes, as the address has it. */
export const changes = signal("");
export const timeline = signal<Timeline | null>(null);
export const moment = signal<Moment | null>(null);
export const problem = signal("");
export const live = computed(() => at.value === 0);
/** What else the address holds: parameters by name, those of one view alone with its name; empty ones are left out. */
const others = new Map<string, { text: Signal<string>; only: View | undefined }>();

export function inAddress(name: string, only?: View): Signal<string> {
  const text = signal("");
  others.set(name, { text, only });
  return text;
}

/** Take these parameters of a view out of those that an address has. */
export function readOthers(given: URLSearchParams, shows: View): void {
  for (const [name, { text, only }] of others) {
    if (only && only !== shows) continue;
    text.value = given.get(name) ?? "";
    given.delete(name);
  }
}

export function addOthers(query: URLSearchParams, shows: View): void {
  for (const [name, { text, only }] of others) {
    if (text.value && (!only || only === shows)) query.set(name, text.value);
  }
}
/** The offset of the newest event that the server told of. */
const newest = signal(0);
/** How many events came since the timeline was read: while the page stays at a point, it isn't read again. */
export const unread = computed(() => (live.value ? 0 : Math.max(0, newest.value - (timeline.value?.last ?? Infinity))));
const grew = signal(false);
/** Whether the log's last event is its end, rather than the latest one: Arranger writes a log to a file only once it
 * has ended, another program's file has grown if it goes on, and on one in Redis nobody works any more. */
export const ended = computed(() => !!timeline.value?.stored && !grew.value);
/** The offset that is shown, or asked for if there is no answer yet. */
export const shownAt = computed(() => at.value || (timeline.value?.last ?? 0));
/** The offset that questions of single views ask about: it follows the answer, not each move of the slider. */
export const settledAt = computed(() => moment.value?.at ?? 0);
/** The same with the time up to which answers about it count, for what grows with time. */
export const settledPoint = computed(() => (settledAt.value ? pointOf(settledAt.value, countedMs.value) : ""));
/** Up to when the last answer about the point counted; 0: up to its event. */
const countedMs = signal(0);

/** Whether names are replaced, for an export that leaves the house. */
export const masked = signal(false);

/** The end of the batch in which the shown point is, if it is not the point itself: a batch is never split. */
export const batchEnd = computed(() => (answered.value === shownPoint.value && settledAt.value > at.value ? settledAt.value : 0));
/** The point that `moment` was asked for; null: none. */
const answered = signal<string | null>(null);

/** Whether the log may go on: then its end is now. */
const runsOn = (): boolean => !!timeline.peek() && !ended.peek();
/** The time of the log's end, in seconds: now, of one that goes on. */
export const endTime = (): number => Math.max(timeline.peek()?.lastTime ?? 0, runsOn() ? now() : 0);
/** The question that is asked, and its point. */
let asking: { point: string; ended: AbortController } | null = null;
let wanted: string | null = null;
/** How long a question about another point is waited for before it is given up. */
const PATIENCE_MS = 300;
/** When a question is asked again that wasn't answered, for a reason that may pass. */
const RETRY_MS = 2000;

/** Ask for the moment; while an answer is awaited, only the newest wish is kept. */
async function refresh(point: string): Promise<void> {
  wanted = point;
  if (asking) {
    const { ended } = asking;
    if (asking.point !== point) setTimeout(() => ended.abort(), PATIENCE_MS);
    return;
  }
  while (wanted !== null) {
    const [asked, began]: [string, number] = [wanted, performance.now()];
    wanted = null;
    const ended = new AbortController();
    asking = { point: asked, ended };
    try {
      const found = await ask<Moment>("moment", { at: asked }, ended);
      batch(() => {
        // While the log is followed, the clock runs, and doesn't go back to the time of an event.
        const runs = !asked && runsOn();
        const time = runs ? Math.max(found.time, moment.peek()?.time ?? 0, now()) : found.time;
        moment.value = { ...found, time };
        countedMs.value = !asked || asked.includes("@") ? Math.round(time * 1000) : 0;
        answered.value = asked;
      });
      problem.value = "";
      measured(began, parseInt(asked || "0", 10));
    } catch (caught) {
      if (ended.signal.aborted) continue;
      problem.value = words(caught);
      if (passes(caught)) setTimeout(() => void refresh(shownPoint.peek()), RETRY_MS);
    } finally {
      asking = null;
    }
  }
}

/** How long the last moment took from the question until it was painted, among the browser's own timings. */
function measured(began: number, offset: number): void {
  requestAnimationFrame(() =>
    // The first frame may still be drawing.
    requestAnimationFrame(() => {
      performance.clearMeasures("moment");
      performance.measure("moment", { start: began, detail: offset });
    }),
  );
}

let reading = false;
let readAgain = false;

/** Read the timeline. While it is read, further wishes are one. */
export async function readTimeline(): Promise<void> {
  readAgain = reading;
  if (reading) return;
  reading = true;
  do {
    readAgain = false;
    try {
      const before = timeline.peek();
      const log = (timeline.value = await ask<Timeline>("timeline", { buckets: 400 }));
      problem.value = "";
      if (before && before.complete !== false && log.last > before.last) goesOn();
      // An address may name a point that the log doesn't have.
      if (log.complete !== false && at.value > log.last) {
        missed.value = at.value;
        at.value = log.last;
      }
      if (log.complete !== false) open(log);
      // The server still reads the log: the rest follows.
      if (log.complete === false) {
        readAgain = true;
        await new Promise((done) => setTimeout(done, 1000));
      }
    } catch (caught) {
      problem.value = words(caught);
      if (passes(caught)) {
        readAgain = true;
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    }
  } while (readAgain);
  reading = false;
}

/** Whether the address that the page was opened with names no point. */
const pointless = signal(false);
/** Whether the shown point is the one that the page shall be opened at, and its answer is there. */
export const settled = computed(() => settledAt.value > 0 && !pointless.value && answered.value === shownPoint.value);
const OPENED_MS = 5000;

/** The offset after the log's last event that an address named; 0: none. */
export const missed = signal(0);

/** The point that the page chose at its opening; 0: none. */
let opened = 0;

/** A log that has ended opens where most happened: at its end, nothing waits or runs any more. */
function open(log: Timeline): void {
  if (pointless.peek() && ended.value && log.busiest && performance.now() < OPENED_MS) at.value = opened = log.busiest;
  pointless.value = false;
}

/** The log goes on after all: a page that has just been opened follows it. */
function goesOn(): void {
  if (!grew.peek() && opened && at.peek() === opened && performance.now() < OPENED_MS) at.value = 0;
  grew.value = true;
}

export function words(caught: unknown): string {
  return caught instanceof Refused || caught instanceof Error ? caught.message : String(caught);
}

/** Show the point after the event at `offset`, as of the time of that event, or of another one. */
export function goTo(offset: number, timeMs = 0): void {
  pointless.value = false;
  const log = timeline.value;
  const last = log?.last ?? offset;
  batch(() => {
    at.value = Math.max(log?.first ?? 1, Math.min(Math.round(offset), last));
    seenMs.value = timeMs;
  });
}

/** Show the event before: of a point some time after an event, that event. */
export const goBack = (): void => goTo(shownAt.value - (seenMs.value ? 0 : 1));

export function goToEnd(): void {
  pointless.value = false;
  at.value = 0;
}

/** Show the point after the last event up to a time in seconds; with `exact`, as of that time: in a quiet stretch the
 * clock moves though nothing happened. */
export function goToTime(time: number, exact = false): Promise<void> {
  return moved(async () => {
    const log = timeline.value;
    if (!log) return null;
    const timeMs = Math.round(Math.max(log.firstTime, Math.min(time, exact ? endTime() : log.lastTime)) * 1000);
    const { buckets } = await ask<Timeline>("timeline", { buckets: 1, sinceMs: timeMs, untilMs: timeMs });
    return [buckets[0]?.at ?? log.last, exact ? timeMs : 0];
  });
}

export function step(direction: "after" | "before"): Promise<void> {
  return moved(async () => {
    const found = await ask<{ at: number | null }>("decision", { [direction]: shownAt.value });
    return found.at ? [found.at, 0] : null;
  });
}

let moves: Promise<void> = Promise.resolve();

/**
 * Goes to the point that the server is asked for. Moves that are asked for quickly go one after another, each from where
 * the last one led; whoever has chosen another point meanwhile stays there.
 */
function moved(found: () => Promise<[at: number, timeMs: number] | null>): Promise<void> {
  return (moves = moves.then(async () => {
    const from = at.value;
    try {
      const there = await found();
      if (there && at.value === from) goTo(...there);
      problem.value = "";
    } catch (caught) {
      problem.value = words(caught);
    }
  }));
}

export function openJob(job: string): void {
  chosen.value = job;
  view.value = "job";
}

const letters = (name: string): string => name.toLowerCase().replace(/[^a-z]/g, "");
/** The view of a name, or of one that is written a little differently: WhatIf, queue. */
const viewNamed = (name: string): View | undefined =>
  VIEWS.find((one) => one === name) ?? VIEWS.find((one) => letters(one).replace(/s$/, "") === letters(name).replace(/s$/, ""));

function readAddress(): void {
  const [name = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const found = viewNamed(name);
  const shows = (view.value = found ?? "overview");
  noView.value = found ? "" : name;
  const [, offset = 0, timeMs = 0] = (/^(\d{1,15})(?:@(\d{1,15}))?$/.exec(given.get("at") ?? "") ?? []).map(Number);
  at.value = offset;
  seenMs.value = offset ? timeMs || 0 : 0;
  chosen.value = given.get("job") ?? "";
  readOthers(given, shows);
  given.delete("at");
  given.delete("job");
  if (view.value === "what-if") changes.value = given.toString();
}

/** The address of a view at a point: a link is a moment. */
export function address(to: { view?: View; at?: number; job?: string }): string {
  const query = new URLSearchParams();
  const offset = to.at ?? at.value;
  if (offset || ended.value) query.set("at", offset ? pointOf(offset, to.at ? 0 : seenMs.value) : "end");
  const job = to.job ?? chosen.value;
  if (job) query.set("job", job);
  const shows = to.view ?? view.value;
  addOthers(query, shows);
  const tail = [query.toString(), shows === "what-if" ? changes.value : ""].filter(Boolean).join("&");
  return `#/${shows}${tail && `?${tail}`}`;
}

/** Up to when ages count in an answer of this time, in seconds: while the log is followed, the clock goes on. */
export const until = (time: number): number => (live.value ? Math.max(time, moment.value?.time ?? 0) : time);

const TICK_MS = 1000;

/** In a quiet cluster too, time goes on: ages grow although no event comes. */
function tick(): void {
  const shown = moment.peek();
  const quiet = live.peek() && timeline.peek() && !ended.peek() && !lost.peek() && !document.hidden;
  if (shown && quiet && now() > shown.time) moment.value = { ...shown, time: now() };
  const lapse = shown?.lapses;
  if (quiet && lapse && now() > lapse) {
    lapsed.value = lapse;
    void refresh("");
  } else if (quiet && now() - countedMs.peek() / 1000 > QUIET_S) void refresh("");
}
/** When room was given back last without an event: what counts it is asked anew. */
export const lapsed = signal(0);
/** After so long without an event, what the server counts is counted anew. */
const QUIET_S = 30;

/** When another log took the place of the one that was shown, in seconds since 1970; 0: none did, or the reader knows. */
export const replacedAt = signal(0);
/** How many logs were shown before this one: the key of the parts of the page that hold answers. */
export const earlierLogs = signal(0);

/** Another log is there: nothing of the earlier one stays, and the page stands at the end of the new one, since its
 * offsets and times mean nothing there. The parts of the page that hold answers begin anew, by their key. */
function beginAnew(): void {
  batch(() => {
    replacedAt.value = now();
    earlierLogs.value += 1;
    at.value = seenMs.value = countedMs.value = newest.value = opened = 0;
    moment.value = timeline.value = answered.value = null;
    grew.value = pointless.value = false;
    problem.value = "";
    changes.value = "";
    for (const { text } of others.values()) text.value = "";
  });
}

export function start(): void {
  let known = epoch.peek();
  effect(() => {
    const next = epoch.value;
    if (known && next !== known) {
      beginAnew();
      void refresh("");
      void readTimeline();
    }
    known = next;
  });
  readAddress();
  pointless.value = !/[?&]at=/.test(location.hash);
  addEventListener("hashchange", readAddress);
  setInterval(tick, TICK_MS);
  let shown = location.hash;
  effect(() => {
    const next = address({});
    if (next === shown && location.hash === next) return;
    // A new view can be left with Back; each move in time can't.
    const same = next.split("?")[0] === location.hash.split("?")[0] || !location.hash;
    history[same ? "replaceState" : "pushState"](null, "", next);
    shown = next;
  });
  effect(() => {
    void token.value;
    void refresh(shownPoint.value);
  });
  effect(() => {
    void token.value;
    // Also when the page goes live: events may have come while it stayed at a point.
    if (live.value || !timeline.peek()) void readTimeline();
  });
  effect(() => {
    void token.value;
    const ended = new AbortController();
    let due = 0;
    const onNews = (offset: number): void => {
      if (offset > (timeline.peek()?.last ?? Infinity)) goesOn();
      newest.value = offset || newest.peek();
      // A file may have grown between the page's first questions and this connection.
      if (!offset && timeline.peek()?.stored) void readTimeline();
      if (!live.peek()) return;
      due ||= window.setTimeout(() => {
        due = 0;
        if (live.peek()) void Promise.all([refresh(""), readTimeline()]);
      }, 500);
    };
    void watch(onNews, ended.signal);
    return () => {
      clearTimeout(due);
      ended.abort();
    };
  });
}
