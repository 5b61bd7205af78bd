// The cluster over the whole log, as charts; a click goes to that point in time.
import { Chart, type Drawn } from "./chart";
import { Missing, Note } from "./parts";
import { goTo, moment, timeline } from "./store";
import { offsetAt } from "./time";
import type { Series } from "./types";
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

export function OverTime({ courses }: { courses: (of: Series) => Course[] }) {
  const log = timeline.value;
  // Asked again only when the log has grown: the answer doesn't depend on the point.
  const answer = useAnswer<Series>(log ? "series" : "", { points: POINTS, ...ofPart(), log: log?.last });
  const value = answer.value;
  if (!value) return <Missing {...answer} none="The log is empty." />;
  // Without the right to list nodes or queues, their lines are empty.
  const seen = courses(value).map((one) => ({ ...one, lines: one.lines.filter((line) => line.values.length) }));
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
            onTime={(time) => log && goTo(offsetAt(log, time))}
            height={one.height}
            lines={one.lines}
          />
          {one.about && <p class="faint">{one.about}</p>}
        </section>
      ))}
    </>
  );
}
