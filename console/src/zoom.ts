// The part of the time that the line of time, the charts over time and the Gantt chart show.
import { computed } from "@preact/signals";
import { inAddress, moment, timeline } from "./store";

/** Two times, in seconds since 1970. */
export type Span = readonly [number, number];

/** The part that was chosen, as from and to in milliseconds. */
const chosen = inAddress("zoom");
/** The same in seconds; null: all of the time. */
export const zoom = computed((): Span | null => {
  const [, from, to] = /^(\d{1,15})-(\d{1,15})$/.exec(chosen.value) ?? [];
  return from && to && Number(to) > Number(from) ? [Number(from) / 1000, Number(to) / 1000] : null;
});

const NARROWEST_S = 1;

/** All of the time: from the log's first event to its last, or, where the clock runs, to now. */
export const whole = computed((): Span => {
  const log = timeline.value;
  if (!log) return [0, 1];
  return [log.firstTime, Math.max(log.lastTime, moment.value?.time ?? 0, log.firstTime + 0.001)];
});
/** What is shown. */
export const part = computed((): Span => zoom.value ?? whole.value);

/** The zoomed part as parameters of a question. */
export const ofPart = (): { sinceMs?: number; untilMs?: number } =>
  zoom.value ? { sinceMs: Math.floor(zoom.value[0] * 1000), untilMs: Math.ceil(zoom.value[1] * 1000) } : {};

/** Show a span of time, as wide as it is, within all of the time; nothing while it isn't known how much that is. */
export function show(from: number, to: number): void {
  if (!timeline.value) return;
  const [begin, end] = whole.value;
  const wide = Math.max(to - from, NARROWEST_S);
  if (wide >= end - begin) return showAll();
  const left = Math.max(begin, Math.min(from, end - wide));
  chosen.value = `${Math.round(left * 1000)}-${Math.round((left + wide) * 1000)}`;
}

export function showAll(): void {
  chosen.value = "";
}

/** Show `factor` times as much; the time `around` stays where it is. */
export function zoomBy(factor: number, around = moment.value?.time ?? whole.value[1]): void {
  const [from, to] = part.value;
  const fixed = Math.max(from, Math.min(around, to));
  const wide = Math.max((to - from) * factor, NARROWEST_S);
  const left = fixed - ((fixed - from) / (to - from)) * wide;
  show(left, left + wide);
}

/** Move the part by a share of its width. */
export function pan(share: number): void {
  const [from, to] = part.value;
  const step = share * (to - from);
  show(from + step, to + step);
}

/** Have a time in the part: it moves there, as wide as it is. */
export function reveal(time: number): void {
  const span = zoom.value;
  if (!span || !timeline.value || (span[0] <= time && time <= span[1])) return;
  const half = (span[1] - span[0]) / 2;
  show(time - half, time + half);
}

/** Zoom or move with the wheel, at a place of a picture of the part. */
export function onWheel(event: WheelEvent, time: number): void {
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) pan((event.deltaX || event.deltaY) / 800);
  else zoomBy(Math.exp(event.deltaY / 300), time);
}
