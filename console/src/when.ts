// A point of the log as it is typed: `yesterday 15:00`, `-2h`, an ISO time, or the number of an event. The commands take
// the same (`arranger/points.py`); `tests/typed_points.py` has what both are held to.

export const WHEN = "yesterday 15:00, -2h, 2h ago, 2026-05-04T10:30, 15:00, the number of an event, start or end";

export type When = { time: number } | { at: number } | "end";

const SECONDS: Record<string, number> = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600, d: 86_400, w: 604_800 };
const PART = "(\\d{1,9}(?:\\.\\d+)?) ?(ms|min|s|m|h|d|w)";
const SPAN = `(?:${PART} ?)+`;
const SIGNED = new RegExp(`^([+−-]) ?${SPAN}$`);
const AGO = new RegExp(`^${SPAN}(?:ago)?$`);
const MOMENT =
  /^(?:(today|yesterday|[12]\d{3}-\d\d-\d\d)(?:[ t](?=\d)|$))?(?:([01]?\d|2[0-3])(:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?) ?(z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?$/;

/** What was typed; null: it isn't understood. `shown` is the time of the point that is shown, `end` that of the log's
 * end, in seconds. Days and times of day are those of the reader's time zone, unless they name one; a time of day alone
 * is of the day that is shown, and *today* is the day of the end. */
export function when(typed: string, shown: number, end: number): When | null {
  const text = typed.trim().toLowerCase().replace(/\s+/g, " ");
  if (text === "end" || text === "now") return "end";
  if (text === "start") return { at: 1 };
  const event = /^#?(\d{1,15})$/.exec(text);
  if (event) return Number(event[1]) > 0 ? { at: Number(event[1]) } : null;
  const signed = SIGNED.exec(text);
  if (signed) return { time: shown + (signed[1] === "+" ? 1 : -1) * seconds(text) };
  if (AGO.test(text)) return { time: end - seconds(text) };
  const found = text && MOMENT.exec(text);
  if (!found) return null;
  const [, day, hour = "00", minute = ":00", zone = ""] = found;
  const date = day === "today" || day === "yesterday" ? dateOf(end, day === "today" ? 0 : -1) : (day ?? dateOf(shown, 0));
  const time = Date.parse(`${date}T${hour.padStart(2, "0")}${minute}${zone.toUpperCase().replace(/^...$/, "$&:00")}`);
  // A day that its month hasn't would be one of the next month.
  return Number.isNaN(time) || dateOf(Date.parse(`${date}T12:00`) / 1000, 0) !== date ? null : { time: time / 1000 };
}

function seconds(duration: string): number {
  return [...duration.matchAll(new RegExp(PART, "g"))].reduce(
    (sum, [, number, unit]) => sum + Number(number) * SECONDS[unit!]!,
    0,
  );
}

/** The date so many days after that of a time. */
function dateOf(time: number, days: number): string {
  const day = new Date(time * 1000);
  day.setDate(day.getDate() + days);
  return new Date(day.getTime() - day.getTimezoneOffset() * 60_000).toISOString().slice(0, 10);
}
