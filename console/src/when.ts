// A point of the log as it is typed: `yesterday 15:00`, `-2h`, an ISO time, or the number of an event. The commands take
// the same (`parse_at` in `arranger/cli/inputs/reading.py`).

export const WHEN = "yesterday 15:00, -2h, 2h ago, 2026-05-04T10:30, 15:00, the number of an event, start or end";

export type When = { time: number } | { at: number } | "end";

const SECONDS: Record<string, number> = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600, d: 86_400, w: 604_800 };
const DURATION = /^(?:\d+(?:\.\d+)?\s*(?:ms|min|s|m|h|d|w)\s*)+$/;
const CLOCK = /^(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?$/;
const DAYS: Record<string, number> = { today: 0, yesterday: -1 };

/** What was typed; null: it isn't understood. `shown` is the time of the point that is shown, `end` that of the log's
 * end, in seconds. Days and times of day are those of the reader's time zone; a time of day alone is of the day that is
 * shown, and *today* is the day of the end. */
export function when(typed: string, shown: number, end: number): When | null {
  const text = typed.trim().toLowerCase().replace(/\s+/g, " ");
  if (text === "end" || text === "now") return "end";
  if (text === "start") return { at: 1 };
  const event = /^#?(\d{1,15})$/.exec(text);
  if (event) return Number(event[1]) > 0 ? { at: Number(event[1]) } : null;
  const signed = /^([+-]|−)\s?(.*)$/.exec(text);
  if (signed && DURATION.test(signed[2]!)) return { time: shown + (signed[1] === "+" ? 1 : -1) * seconds(signed[2]!) };
  const ago = /^(.*\S) ?ago$/.exec(text);
  if (ago && DURATION.test(ago[1]!)) return { time: end - seconds(ago[1]!) };
  const [day = "", clock = "", ...rest] = text.split(" ");
  if (!rest.length && day in DAYS) return ofDay(end, DAYS[day]!, clock || "0:00");
  if (CLOCK.test(text)) return ofDay(shown, 0, text);
  // A date alone would be in UTC, unlike one with a time.
  const date = /^\d{4}-\d{2}-\d{2}(?![\d])(.*)$/.exec(text);
  if (!date) return null;
  const time = Date.parse(date[1] ? text.replace(" ", "T").replace(/ /g, "").toUpperCase() : `${text}T00:00`);
  return Number.isNaN(time) ? null : { time: time / 1000 };
}

function seconds(duration: string): number {
  return [...duration.matchAll(/(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)/g)].reduce(
    (sum, [, number, unit]) => sum + Number(number) * SECONDS[unit!]!,
    0,
  );
}

/** A time of day so many days after the day of another time. */
function ofDay(of: number, days: number, clock: string): When | null {
  const [, hours, minutes, rest = "0"] = CLOCK.exec(clock) ?? [];
  if (!hours || Number(hours) > 23 || Number(minutes) > 59 || Number(rest) >= 60) return null;
  const found = new Date(of * 1000);
  found.setDate(found.getDate() + days);
  found.setHours(Number(hours), Number(minutes), 0, 0);
  return { time: found.getTime() / 1000 + Number(rest) };
}
