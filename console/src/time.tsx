// Time, on top of everything: the log's events over time, its marks, and the point that all views show.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { lost } from "./api";
import { Slider, Zooming } from "./slider";
import { batchEnd, ended, endTime, goBack, goTo, goToEnd, goToTime, live, missed, moment, shownAt, step, timeline, unread } from "./store";
import type { Timeline } from "./types";
import { colour, narrow, useAnswer } from "./use";
import { WHEN, when } from "./when";
import { clock, count, many, plain, shown, stamp, zone } from "./words";
import { ofPart, pan, part, reveal, showAll, zoom, zoomBy } from "./zoom";

/** How high the slider is; a phone has little room. */
const high = (): number => (narrow.value ? 32 : 54);
export const helpShown = signal(false);

/** The timeline of the zoomed part, if there is one. */
const zoomed = signal<Timeline | null>(null);

/** Time by offset and offset by time, between the ends of the buckets; those of a part are finer. */
function scale(log: Timeline): { offsets: number[]; times: number[] } {
  const offsets = [log.first];
  const times = [log.firstTime];
  const add = (at: number, time: number): void => {
    if (at <= (offsets.at(-1) ?? 0) || at > log.last) return;
    offsets.push(at);
    times.push(Math.max(time, times.at(-1) ?? 0));
  };
  const fine = zoomed.value?.buckets ?? [];
  const [from, to] = [fine[0]?.time ?? Infinity, fine.at(-1)?.time ?? Infinity];
  for (const one of log.buckets) if (one.time < from) add(one.at, one.time);
  for (const one of fine) add(one.at, one.time);
  for (const one of log.buckets) if (one.time > to) add(one.at, one.time);
  add(log.last, log.lastTime);
  return { offsets, times };
}

function between(from: number[], to: number[], value: number): number {
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle]! <= value) low = middle;
    else high = middle;
  }
  const [one, other] = [from[low]!, from[high]!];
  const share = other > one ? Math.max(0, Math.min(1, (value - one) / (other - one))) : 0;
  return to[low]! + share * (to[high]! - to[low]!);
}

export function timeOf(log: Timeline, offset: number): number {
  const { offsets, times } = scale(log);
  return between(offsets, times, offset);
}
export function offsetAt(log: Timeline, time: number): number {
  const { offsets, times } = scale(log);
  return Math.round(between(times, offsets, time));
}

function draw(pen: CanvasRenderingContext2D, log: Timeline, x: (time: number) => number): void {
  const most = Math.max(1, ...log.buckets.map((one) => one.events));
  let left = x(log === zoomed.value ? part.value[0] : log.firstTime);
  for (const one of log.buckets) {
    const right = x(one.time);
    const wide = Math.max(1, right - left - (right - left > 2 ? 0.5 : 0));
    if (one.events) {
      // The square root keeps quiet times visible beside the busiest.
      const height = Math.max(2, Math.sqrt(one.events / most) * (high() - 20));
      pen.fillStyle = colour("--density");
      pen.fillRect(left, high() - 6 - height, wide, height);
    }
    if (one.decisions) {
      pen.fillStyle = colour("--accent");
      pen.fillRect(left, high() - 6, Math.min(wide, 4), 3);
    }
    left = right;
  }
  for (const mark of log.marks) {
    pen.fillStyle = pen.strokeStyle = colour(`--mark-${mark.kind}`);
    const middle = x(mark.time);
    pen.beginPath();
    if (mark.kind === "belowQuorum") {
      pen.arc(middle, 4, 3, 0, 7);
      pen.stroke();
      continue;
    }
    if (mark.kind === "nodeLost") pen.rect(middle - 3, 1, 6, 6);
    else if (mark.kind === "nodeCordoned") pen.strokeRect(middle - 3, 1, 6, 6);
    else if (mark.kind === "preempted" || mark.kind === "podFailed") pen.arc(middle, 4, 3.5, 0, 7);
    else if (mark.kind === "jobRescheduled") path(pen, [middle - 4, 4], [middle, 0], [middle + 4, 4], [middle, 8]);
    else if (mark.kind === "workersReplaced" || mark.kind === "workersGivenUp") path(pen, [middle - 4, 0], [middle, 8], [middle + 4, 0]);
    else path(pen, [middle - 4, 8], [middle, 0], [middle + 4, 8]);
    pen.fill();
  }
}

function path(pen: CanvasRenderingContext2D, ...points: [number, number][]): void {
  for (const [x, y] of points) pen.lineTo(x, y);
}

/** What the mark nearest to a time says, if one is within `reach` seconds. */
function markAt(log: Timeline, time: number, reach: number): string {
  const near = log.marks.filter((one) => Math.abs(one.time - time) <= reach);
  near.sort((one, other) => Math.abs(one.time - time) - Math.abs(other.time - time));
  const [first] = near;
  const names = (first?.subjects ?? []).slice(0, 3).map(shown).join(", ");
  return first ? `${plain(first.kind)}: ${names} at ${clock(first.time)}, event ${count(first.at)}` : "";
}

/** A text that may be typed over. While somebody types, a new value doesn't take the text away. */
function Typed(props: {
  label: string;
  kind: string;
  title: string;
  size: number;
  value: string;
  numeric?: boolean;
  describedBy?: string | undefined;
  go: (text: string) => void;
}) {
  const [typed, setTyped] = useState<string | null>(null);
  const dropped = useRef(false);
  const go = (): void => {
    if (!dropped.current && typed !== null && typed.trim() !== props.value) props.go(typed);
    setTyped(null);
  };
  return (
    <input
      class={props.kind}
      inputMode={props.numeric ? "numeric" : "text"}
      aria-label={props.label}
      aria-describedby={props.describedBy}
      title={props.title}
      size={props.size}
      autocomplete="off"
      spellcheck={false}
      value={typed ?? props.value}
      onInput={(event) => setTyped(event.currentTarget.value)}
      onFocus={(event) => {
        dropped.current = false;
        event.currentTarget.select();
      }}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== "Escape") return;
        // The keys that move through time mean that again; what was typed counts by Enter, as by any other way out.
        dropped.current = event.key === "Escape";
        event.currentTarget.blur();
      }}
      onBlur={go}
    />
  );
}

/** What is wrong with the time that was typed. */
const unknown = signal("");

/** Whether a point is before or after the log, in words; empty if the log has it. */
function beyond(found: Exclude<ReturnType<typeof when>, null>, typed: string): string {
  const log = timeline.value;
  if (!log || found === "end" || typed.trim().toLowerCase() === "start") return "";
  const [begin, end] = [log.firstTime, endTime()];
  const [first, last, value] =
    "at" in found ? [log.first, log.last, found.at] : [Math.floor(begin), Math.ceil(end), found.time];
  if (value >= first && value <= last) return "";
  const has = `events ${count(log.first)} to ${count(log.last)}, ${stamp(begin)} to ${stamp(end)}`;
  return value < first
    ? `“${typed}” is before the log (${has}): this is its beginning.`
    : `“${typed}” is after the log (${has}): this is its end.`;
}

missed.subscribe((offset) => {
  if (offset) unknown.value = beyond({ at: offset }, String(offset));
});

/** Where the time is typed. */
function When({ time }: { time: number }) {
  return (
    <Typed
      label="Time"
      kind="typed"
      title={`Type a time to go there (t): ${WHEN}`}
      size={19}
      value={stamp(time)}
      describedBy={unknown.value ? "unknown-time" : undefined}
      go={(text) => {
        const found = when(text, time, endTime());
        unknown.value = found ? beyond(found, text) : `“${text}” is no time: try ${WHEN}.`;
        if (found === "end") goToEnd();
        else if (found && "at" in found) goTo(found.at);
        else if (found) void goToTime(found.time, true);
      }}
    />
  );
}

function Unknown() {
  if (!unknown.value) return null;
  return (
    <p class="unknown bad live-only" id="unknown-time" role="alert">
      {unknown.value}{" "}
      <button type="button" aria-label="Close" onClick={() => (unknown.value = "")}>
        ×
      </button>
    </p>
  );
}

/** Whether the log may have a decision before an offset, or after it. */
const decidesBefore = (log: Timeline | null, offset: number): boolean => (log?.decided?.[0] ?? 0) < offset;
const decidesAfter = (log: Timeline | null, offset: number): boolean =>
  !log?.decided || log.decided[1] > offset || unread.value > 0;

const BUCKETS = 400;

export function Time() {
  const log = timeline.value;
  const answer = useAnswer<Timeline>(log && zoom.value ? "timeline" : "", { buckets: BUCKETS, ...ofPart(), log: log?.last });
  useEffect(() => {
    zoomed.value = zoom.value ? answer.value : null;
  }, [answer.value, zoom.value]);
  const offset = shownAt.value;
  const now = moment.value;
  const time = now && (now.at === offset || now.at === batchEnd.value) ? now.time : log ? timeOf(log, offset) : (now?.time ?? 0);
  // The part follows the point, but not the other way round; what an address names is shown as it is.
  const before = useRef(0);
  useEffect(() => {
    if (now && before.current) reveal(now.time);
    before.current = now?.at ?? 0;
  }, [now?.at]);
  const drawn = zoomed.value ?? log;
  const kinds = [...new Set(drawn?.marks.map((one) => one.kind))];
  const [from, to] = part.value;
  return (
    <section class="time" aria-label="Time">
      <Slider
        label="Point in the log"
        height={high()}
        time={time}
        values={[log?.first ?? 0, log?.last ?? 0, offset]}
        text={`event ${offset}, ${stamp(time)}`}
        of={[drawn]}
        draw={(pen, x) => drawn && draw(pen, drawn, x)}
        onTime={(there) => log && goTo(offsetAt(log, there))}
        about={(there, reach) => (drawn ? markAt(drawn, there, reach) : "")}
      />
      <div class="steps">
        <span class="now">
          <When time={now?.time ?? time} />
          <span class="faint">
            {" "}
            <span class="wide">
              event{" "}
              <Typed
                label="Event"
                kind="number-of-event"
                title="Type the number of an event to go there"
                size={String(log?.last ?? 0).length}
                value={String(offset)}
                numeric
                go={(text) => {
                  const asked = Number(text);
                  if (!Number.isSafeInteger(asked) || asked <= 0) return;
                  unknown.value = beyond({ at: asked }, text);
                  goTo(asked);
                }}
              />{" "}
              of {count(log?.last ?? 0)}, {zone(now?.time ?? time)}
              {!live.value && batchEnd.value > 0 && `, in a batch that ends with event ${count(batchEnd.value)}`}
            </span>
          </span>
        </span>
        <span class="buttons">
          <button
            type="button"
            disabled={!decidesBefore(log, offset)}
            onClick={() => void step("before")}
            aria-label="‹ Decision"
            title="the decision before this point (p)"
          >
            ‹<span class="wide"> Decision</span>
          </button>
          <button
            type="button"
            disabled={!decidesAfter(log, offset)}
            onClick={() => void step("after")}
            aria-label="Decision ›"
            title="the decision after this point (n)"
          >
            <span class="wide">Decision </span>›
          </button>
          {ended.value && !!log?.busiest && (
            <button
              type="button"
              class={offset === log.busiest ? "on wide" : "wide"}
              aria-pressed={offset === log.busiest}
              onClick={() => goTo(log.busiest!)}
              title="where most jobs waited or ran at once (b)"
            >
              Where most happened
            </button>
          )}
          <button
            type="button"
            aria-pressed={live.value}
            class={live.value ? "on" : ""}
            onClick={toggleLive}
            title={ended.value ? "the end of the log, which has ended (Space)" : "follow the log, or stay at this point (Space)"}
          >
            {ended.value ? "At the end" : !live.value ? "Follow" : lost.value ? "Retrying" : "Following"}
            {!ended.value && <span class="wide">{live.value ? " · stay" : " the end"}</span>}
          </button>
          <span class="wide">
            <Zooming />
          </span>
          <span class="unread live-only" role="log" aria-label="New events">
            {unread.value > 0 && many(unread.value, "new event")}
          </span>
        </span>
        <ul class="legend">
          {kinds.map((kind) => (
            <li key={kind}>
              <span class={`mark ${kind}`} />
              {plain(kind)}
            </li>
          ))}
          {log && (
            <li class="faint wide">
              {spanText(from, to)}
            </li>
          )}
        </ul>
      </div>
      <Unknown />
    </section>
  );
}

/** Times of a part, with the day where it is more than one. */
function spanText(from: number, to: number): string {
  const [begin, end] = [stamp(from), stamp(to)];
  return begin.slice(0, 10) === end.slice(0, 10) ? `${clock(from)} to ${clock(to)}` : `${begin} to ${end}`;
}

function toggleLive(): void {
  if (live.value) goTo(shownAt.value);
  else goToEnd();
}

const KEYS: Record<string, () => unknown> = {
  ArrowLeft: goBack,
  ArrowRight: () => goTo(shownAt.value + 1),
  PageUp: () => leap(-1),
  PageDown: () => leap(1),
  Home: () => goTo(timeline.value?.first ?? 1),
  End: () => goTo(timeline.value?.last ?? 1),
  n: () => void step("after"),
  p: () => void step("before"),
  b: () => ended.value && timeline.value?.busiest && goTo(timeline.value.busiest),
  t: () => document.querySelector<HTMLInputElement>(".typed")?.focus(),
  "+": () => zoomBy(0.5),
  "-": () => zoomBy(2),
  "0": showAll,
  " ": toggleLive,
  "?": () => (helpShown.value = !helpShown.value),
};

function leap(direction: number): void {
  const log = timeline.value;
  if (!log) return;
  const span = (part.value[1] - part.value[0]) / 40;
  const next = offsetAt(log, timeOf(log, shownAt.value) + direction * span);
  goTo(next === shownAt.value ? next + direction : next);
}

/** Keys move through time wherever they mean nothing else. */
export function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target as HTMLElement;
  if (target.closest("input, select, textarea, dialog") && event.key !== "Escape") return;
  const scrolls = target.closest(".rows") && /^(Page|Home|End|Arrow|\s)/.test(event.key);
  const presses = event.key === " " && target.closest("button, summary, a");
  const sideways = event.shiftKey && zoom.value ? { ArrowLeft: -0.25, ArrowRight: 0.25 }[event.key] : undefined;
  const act = sideways ? () => pan(sideways) : KEYS[event.key];
  if (!act || scrolls || presses) return;
  event.preventDefault();
  act();
}
