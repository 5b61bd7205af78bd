// The cluster over the whole log, as charts; a click goes to that point in time.
import { useMemo } from "preact/hooks";
import { Chart, type Drawn } from "./chart";
import { Brief, Missing, Note } from "./parts";
import { ended, goTo, lapsed, live, moment, timeline } from "./store";
import { offsetAt } from "./time";
import type { Moment, Series } from "./types";
import { useAnswer } from "./use";
import { ofPart, part, zoom } from "./zoom";

/** More than a screen can show: of a part of the time that is narrower than a pixel, up to 40 samples count. */
const POINTS = 10_000;

export interface Course {
  title: string;
  label: string;
  height: number;
  about?: string;
  lines: Drawn[];
}

const MIN_GRAIN_S = 10;

/** The series with its last values up to a time: what was so at the last event lasts. */
function lasting(of: Series, until: number): Series {
  if (!of.times.length || until <= of.times.at(-1)!) return of;
  const longer = (values: number[]): number[] => (values.length ? [...values, values.at(-1)!] : values);
  const each = (lines: Series["queues"]): Series["queues"] =>
    Object.fromEntries(Object.entries(lines).map(([name, values]) => [name, longer(values)]));
  const lines = Object.fromEntries(Object.entries(of).map(([name, values]) => [name, Array.isArray(values) ? longer(values) : values]));
  return { ...of, ...lines, times: [...of.times, until], queues: each(of.queues), queuesOwn: each(of.queuesOwn) };
}

/** The place of the values after the event at a point: of those of one millisecond, later ones aren't its. */
function placeOf(of: Series, { at, time }: Moment): number {
  let place = of.times.length - 1;
  while (place > 0 && (of.times[place]! > time || (of.offsets[place] ?? 0) > at)) place--;
  return place;
}

export function OverTime({ courses }: { courses: (of: Series) => Course[] }) {
  const log = timeline.value;
  // Asked again only when the log has grown, or room was given back: the answer doesn't depend on the point.
  const answer = useAnswer<Series>(log ? "series" : "", { points: POINTS, ...ofPart(), log: `${log?.last} ${lapsed.value}` });
  const [begin, end] = part.value;
  const grain = Math.max(MIN_GRAIN_S, (end - begin) / 200);
  const until = live.value && !ended.value ? Math.floor((moment.value?.time ?? 0) / grain) * grain : 0;
  const value = useMemo(() => answer.value && lasting(answer.value, until), [answer.value, until]);
  if (!value) return <Missing {...answer} none="The log is empty." />;
  // Without the right to list nodes or queues, their lines are empty.
  const seen = courses(value).map((one) => ({ ...one, lines: one.lines.filter((line) => line.values.length) }));
  const at = moment.value ? placeOf(value, moment.value) : undefined;
  if (value.times.length < 2 && !zoom.value) return <Note>The log is too short for a course over time.</Note>;
  return (
    <>
      {seen.filter((one) => one.lines.length).map((one) => (
        <section key={one.title}>
          <h3>{one.title}</h3>
          <Chart
            label={one.label}
            times={value.times}
            span={part.value}
            mark={moment.value?.time}
            atMark={at}
            onTime={(time) => log && goTo(offsetAt(log, time))}
            height={one.height}
            lines={one.lines}
          />
          {one.about && <p class="faint"><Brief>{one.about}</Brief></p>}
        </section>
      ))}
    </>
  );
}
