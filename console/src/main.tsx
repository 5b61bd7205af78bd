// The console: time on top, one view below, and what all views share.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { lost, setToken, tokenWanted } from "./api";
import { Cluster } from "./cluster";
import { Cycle } from "./cycle";
import { exportPage, exportPicture, hasPicture } from "./export";
import { Gantt } from "./gantt";
import { JobView } from "./job";
import { Jobs } from "./jobs";
import { Note } from "./parts";
import { Overview } from "./overview";
import { Queues } from "./queues";
import { address, chosen, earlierLogs, live, moment, noView, problem, replacedAt, start, view, VIEWS, type View } from "./store";
import { Time, helpShown, onKey } from "./time";
import { applyScheme, dark, narrow } from "./use";
import { WhatIf } from "./whatif";
import { shown, stamp } from "./words";
import "uplot/dist/uPlot.min.css";
import "./style.css";

const SHOWN: Record<View, { title: string; part: () => preact.JSX.Element }> = {
  cluster: { title: "Cluster", part: Cluster },
  overview: { title: "Overview", part: Overview },
  jobs: { title: "Jobs", part: Jobs },
  gantt: { title: "Gantt", part: () => <Gantt /> },
  job: { title: "Job", part: JobView },
  queues: { title: "Queues", part: Queues },
  cycle: { title: "Cycle", part: Cycle },
  "what-if": { title: "What-if", part: WhatIf },
};

function App() {
  const { title, part: Part } = SHOWN[view.value];
  const views = useRef<HTMLElement>(null);
  const [beyond, setBeyond] = useState("");
  /** On which sides there are more views than are in sight. */
  const look = (): void => {
    const of = views.current;
    if (!of) return;
    const after = of.scrollWidth - of.clientWidth - of.scrollLeft;
    setBeyond(`${of.scrollLeft > 1 ? "before" : ""} ${after > 1 ? "after" : ""}`.trim());
  };
  useEffect(() => {
    // On a narrow screen, the views are more than fit.
    views.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    document.title = `${title} · Arranger`;
    look();
  }, [title, narrow.value]);
  return (
    <>
      <header>
        <div class="top">
          <span class="brand">Arranger</span>
          <nav aria-label="Views" ref={views} class={beyond} onScroll={look}>
            {VIEWS.filter((one) => one !== "job" || chosen.value || view.value === "job").map((one) => (
              <a key={one} href={address({ view: one })} aria-current={view.value === one ? "page" : undefined}>
                {SHOWN[one].title}
              </a>
            ))}
          </nav>
          <span class="buttons live-only">
            <Menu />
            {!narrow.value && (
              <>
                <Scheme />
                <button type="button" onClick={() => (helpShown.value = true)} aria-label="Help" title="Help (?)">
                  ?
                </button>
              </>
            )}
          </span>
        </div>
        <Time key={earlierLogs.value} />
        {replacedAt.value > 0 && <Replaced />}
        {lost.value && !tokenWanted.value && <Lost {...lost.value} />}
      </header>
      <main key={earlierLogs.value} class={lost.value && live.value ? "old" : ""}>
        <h1 class="unseen">{title}</h1>
        {problem.value && moment.value && !lost.value && <Note bad>{shown(problem.value)}</Note>}
        {noView.value && view.value === "overview" && <Note>There is no view named {shown(noView.value)}: this is the overview.</Note>}
        {tokenWanted.value ? <Token /> : <Part />}
      </main>
      <Help />
    </>
  );
}

/** Another log took the place of the one that was shown. */
function Replaced() {
  return (
    <p class="lost" role="alert">
      This is another log now, since {stamp(replacedAt.value)}: nothing of the earlier one is shown any more.{" "}
      <button type="button" onClick={() => (replacedAt.value = 0)}>
        I see
      </button>
    </p>
  );
}

/** Marks the numbers as old. Those of a point in the past are as they were. */
function Lost({ since, why }: { since: number; why: string }) {
  return (
    <p class="lost" role="alert">
      {live.value ? "The numbers are old" : "Nothing new is known"}, since {stamp(since / 1000)}: {shown(why)}.
      <span class="live-only"> Retrying …</span>
    </p>
  );
}

function Scheme() {
  const other = dark.value ? "Light colours" : "Dark colours";
  return (
    <button type="button" onClick={() => applyScheme(dark.value ? "light" : "dark")} aria-label={other} title={other}>
      {narrow.value ? other : dark.value ? "☀" : "☾"}
    </button>
  );
}

/** The exports, and on a phone all that is above the views. */
function Menu() {
  const [drawn, setDrawn] = useState(true);
  const menu = useRef<HTMLDetailsElement>(null);
  const done = (): void => menu.current?.removeAttribute("open");
  return (
    <details class="menu" ref={menu} onToggle={() => setDrawn(hasPicture())}>
      <summary aria-label={narrow.value ? "Menu" : undefined}>{narrow.value ? "⋯" : "Export"}</summary>
      <div>
        <button type="button" onClick={() => void exportPage(false).then(done)}>
          This view as an HTML file
        </button>
        <button type="button" onClick={() => void exportPage(true).then(done)}>
          The same, with pseudonyms
        </button>
        <button type="button" disabled={!drawn} onClick={() => (exportPicture(), done())}>
          {drawn ? "Its picture as PNG" : "No picture in this view"}
        </button>
        {narrow.value && (
          <>
            <Scheme />
            <button type="button" onClick={() => (done(), (helpShown.value = true))}>
              Help
            </button>
          </>
        )}
      </div>
    </details>
  );
}

function Token() {
  return (
    <form
      class="question"
      onSubmit={(event) => {
        event.preventDefault();
        setToken(String(new FormData(event.currentTarget).get("token") ?? "").trim());
      }}
    >
      <label>
        <span>Bearer token of the cluster</span>
        <input name="token" type="password" autocomplete="off" required />
      </label>
      <button type="submit" class="main">
        Sign in
      </button>
      <p class="faint">kubectl create token NAME makes one. It is kept in this tab alone.</p>
    </form>
  );
}

const HELP = [
  ["← →", "one event back, one event on"],
  ["Page Up, Page Down", "a fortieth of the log back or on"],
  ["Home, End", "the beginning and the end of the log"],
  ["p, n", "the decision before, the decision after"],
  ["t", "type a time, such as yesterday 15:00 or -2h"],
  ["+, -, 0", "zoom in, zoom out, all of the time"],
  ["Shift and ←, →", "move the zoomed part"],
  ["b", "in a log that has ended: where most happened"],
  ["Space", "follow the log, or stay"],
  ["?", "this help"],
];

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helpShown.value) dialog.current?.showModal();
    else dialog.current?.close();
  }, [helpShown.value]);
  return (
    <dialog ref={dialog} aria-labelledby="help" onClose={() => (helpShown.value = false)}>
      <h2 id="help">Keys</h2>
      <dl class="pairs">
        {HELP.map(([keys, meaning]) => (
          <>
            <dt>{keys}</dt>
            <dd>{meaning}</dd>
          </>
        ))}
      </dl>
      <p>A link such as #16 goes to the point after that event. The address of the page names the point and the view.</p>
      <button type="button" class="main" onClick={() => (helpShown.value = false)}>
        Close
      </button>
    </dialog>
  );
}

applyScheme();
addEventListener("keydown", onKey);
start();
render(<App />, document.querySelector("#app")!);
