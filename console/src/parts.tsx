// Parts that several views have: a table that draws only the rows in sight, notes, legends, and links to points.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { exportSvg } from "./export";
import type { Parameters } from "./api";
import { address, goTo, openJob, settledAt } from "./store";
import type { Key, Picture } from "./svg";
import { narrow, useWidth } from "./use";
import { amount, clock, shown } from "./words";

const ROW_PX = 30;
const SPARE_ROWS = 10;

export interface Column<R> {
  name: string;
  cell: (row: R) => ComponentChildren;
  /** What the column is sorted by; without it, it isn't. */
  key?: (row: R) => string | number;
  number?: boolean;
  /** A column that isn't wider than it must be. */
  short?: boolean;
  /** One of two columns of long texts, which share what room is left; the texts are whole where all rows are drawn. */
  half?: boolean;
  /** The first choice of this column has its smallest values first, although they are numbers. */
  least?: boolean;
}

export function Table<R>(props: {
  caption: string;
  columns: Column<R>[];
  rows: readonly R[];
  /** What is said without any rows; nothing is drawn without it. */
  none?: string;
  rowsInSight?: number;
  order?: { column: string; down: boolean };
  /** What tells a row from all others: without it, its place, so that the focus stays with the place. */
  id?: (row: R) => string;
}) {
  const { columns, rows, caption } = props;
  const [order, setOrder] = useState(props.order ?? { column: "", down: false });
  const [top, setTop] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  if (!rows.length) return props.none ? <Note>{props.none}</Note> : null;
  const by = columns.find((one) => one.name === order.column)?.key;
  const sorted = by ? sortedBy(rows, by, order.down) : rows;
  const inSight = props.rowsInSight ?? 18;
  const choose = (one: Column<R> | undefined): void =>
    setOrder({ column: one?.name ?? "", down: order.column === one?.name ? !order.down : !!one?.number && !one.least });
  if (narrow.value) return <Cards caption={caption} columns={columns} rows={sorted} order={order} choose={choose} id={props.id} inSight={inSight} />;
  const first = Math.max(0, Math.floor(top / ROW_PX) - SPARE_ROWS);
  const last = Math.min(sorted.length, first + inSight + 2 * SPARE_ROWS);
  // Only a table that scrolls has a height of its own: others grow with the texts that are opened.
  const scrolls = sorted.length > inSight;
  const height = (inSight + 1) * ROW_PX + 15;
  return (
    <div
      class="rows"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label={caption}
      style={scrolls ? { maxHeight: `${height}px` } : undefined}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <table aria-rowcount={sorted.length + 1}>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>
            {columns.map((one) => (
              <th
                key={one.name}
                scope="col"
                class={kind(one)}
                aria-sort={order.column === one.name ? (order.down ? "descending" : "ascending") : undefined}
              >
                {one.key ? (
                  <button
                    type="button"
                    class="plain"
                    onClick={() => choose(one)}
                  >
                    {one.name}
                    <span aria-hidden="true">{order.column === one.name ? (order.down ? " ▾" : " ▴") : ""}</span>
                  </button>
                ) : (
                  one.name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr style={{ height: `${first * ROW_PX}px` }} aria-hidden="true" />}
          {sorted.slice(first, last).map((row, index) => (
            <tr key={props.id?.(row) ?? first + index} aria-rowindex={first + index + 2}>
              {columns.map((one, place) => (
                <Cell
                  key={one.name}
                  kind={kind(one) || (place === columns.length - 1 ? "rest" : "")}
                  content={one.cell(row)}
                  whole={!!one.half && !scrolls}
                />
              ))}
            </tr>
          ))}
          {last < sorted.length && (
            <tr style={{ height: `${(sorted.length - last) * ROW_PX}px` }} aria-hidden="true" />
          )}
        </tbody>
      </table>
    </div>
  );
}

/** How many more cards are drawn on request. */
const CARDS = 30;

/** The rows of a table on a narrow screen: a card for each, with its first cell as its head and without empty cells. */
function Cards<R>(props: {
  caption: string;
  columns: Column<R>[];
  rows: readonly R[];
  order: { column: string; down: boolean };
  choose: (by: Column<R> | undefined) => void;
  id: ((row: R) => string) | undefined;
  inSight: number;
}) {
  const { caption, columns, rows, order, choose } = props;
  const [most, setMost] = useState(props.inSight);
  const [head, ...rest] = columns;
  const orders = columns.filter((one) => one.key);
  return (
    <section aria-label={caption}>
      {orders.length > 0 && rows.length > 1 && (
        <div class="controls">
          <label>
            Order{" "}
            <select
              value={order.column}
              onChange={(event) => choose(orders.find((one) => one.name === event.currentTarget.value))}
            >
              <option value="">as it is</option>
              {orders.map((one) => (
                <option key={one.name}>{one.name}</option>
              ))}
            </select>
          </label>
          {order.column && (
            <button type="button" onClick={() => choose(orders.find((one) => one.name === order.column))}>
              {order.down ? "▾ largest first" : "▴ smallest first"}
            </button>
          )}
        </div>
      )}
      <ul class="cards">
        {rows.slice(0, most).map((row, index) => (
          <li key={props.id?.(row) ?? index}>
            <div class="head">
              {head?.number && `${head.name} `}
              {head?.cell(row)}
            </div>
            <dl>
              {rest
                .map((one) => ({ one, content: one.cell(row) }))
                .filter(({ content }) => content !== "–" && content !== "")
                .map(({ one, content }) => (
                  <div key={one.name}>
                    <dt>{one.name}</dt>
                    <dd>{typeof content === "string" && content.length > LONG ? <Brief>{content}</Brief> : content}</dd>
                  </div>
                ))}
            </dl>
          </li>
        ))}
      </ul>
      {most < rows.length && (
        <button type="button" onClick={() => setMost(most + CARDS)}>
          {Math.min(CARDS, rows.length - most)} more of {rows.length}
        </button>
      )}
    </section>
  );
}

/** Longer texts may be cut off, those of short columns earlier: they are opened by a click. */
const LONG = 40;
const SHORT = 14;

/** A cell. A long text is one line, and opens as a whole, unless it is `whole` at once. */
function Cell(props: { kind: string; content: ComponentChildren; whole: boolean }) {
  const { content } = props;
  const [open, setOpen] = useState(false);
  if (props.whole) return <td class={`${props.kind} whole`}>{content}</td>;
  if (typeof content !== "string" || content.length <= (props.kind === "short" ? SHORT : LONG)) return <td class={props.kind}>{content}</td>;
  return (
    <td class={`${props.kind} ${open ? "opened" : ""}`}>
      <button type="button" class="plain text" title={content} aria-expanded={open} onClick={() => setOpen(!open)}>
        {content}
      </button>
    </td>
  );
}

function kind<R>(column: Column<R>): string {
  return column.number ? "number" : column.short ? "short" : column.half ? "half" : "";
}

/** So many sentences of a list are shown at once. */
const SENTENCES = 3;

/** A list of sentences with a title; of a long one, the rest is shown on request. */
export function Sentences({ title, children }: { title: string; children: ComponentChildren[] }) {
  if (!children.length) return null;
  const [first, rest] = [children.slice(0, SENTENCES), children.slice(SENTENCES)];
  const list = (of: ComponentChildren[]): ComponentChildren => (
    <ul class="sentences">
      {of.map((one, place) => (
        <li key={place}>
          <Brief>{one}</Brief>
        </li>
      ))}
    </ul>
  );
  return (
    <>
      <h4>{title}</h4>
      {list(first)}
      {rest.length > 0 && (
        <details>
          <summary>{rest.length} more</summary>
          {list(rest)}
        </details>
      )}
    </>
  );
}

/** Text of which two lines are shown, and the rest on request. */
export function Brief({ children }: { children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const [cut, setCut] = useState(false);
  const [box, width] = useWidth<HTMLSpanElement>();
  useEffect(() => {
    const of = box.current;
    if (of && !open) setCut(of.scrollHeight > of.clientHeight + 2);
  });
  void width;
  return (
    <span class="brief">
      <span ref={box} class={open ? "" : "clamped"}>
        {children}
      </span>
      {(cut || open) && (
        <button type="button" class="plain more" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "less" : "more"}
        </button>
      )}
    </span>
  );
}

function sortedBy<R>(rows: readonly R[], key: (row: R) => string | number, down: boolean): R[] {
  const sign = down ? -1 : 1;
  return rows
    .map((row) => ({ row, key: key(row) }))
    .sort((one, other) => (one.key < other.key ? -sign : one.key > other.key ? sign : 0))
    .map((one) => one.row);
}

export function Note({ children, bad }: { children: ComponentChildren; bad?: boolean }) {
  return (
    <p class={bad ? "note bad" : "note"} role={bad ? "alert" : undefined}>
      {children}
    </p>
  );
}

/** What stands in the place of an answer that isn't there. */
export function Missing({ problem, busy, none }: { problem: string; busy: boolean; none: string }) {
  if (problem) return <Note bad>{shown(problem)}</Note>;
  return <Note>{busy ? "The answer is being worked out …" : none}</Note>;
}

/** Says of which point an answer is, where the page shows a later one already. */
export function AsOf({ at, time }: { at: Parameters[string]; time?: number }) {
  const point = parseInt(String(at), 10);
  if (!point || point >= settledAt.value) return null;
  return (
    <p class="faint as-of">
      As of {time && `${clock(time)}, `}event <Point at={point} />: the answer about the point shown is being worked out.
    </p>
  );
}

/** A link to a point of the log, shown as its offset. */
export function Point({ at, children }: { at: number; children?: ComponentChildren }) {
  return (
    <a
      class="point"
      href={address({ at })}
      title={`the point after event ${at}`}
      onClick={(event) => {
        event.preventDefault();
        goTo(at);
      }}
    >
      {children ?? `#${at}`}
    </a>
  );
}

/** Names differ most at their ends: of longer ones, a cell that is too narrow keeps the end. */
const LONG_NAME = 24;
const TAIL = 6;

/** A link to a job, now or after the event `at`, shown as its name or as other text. */
export function JobLink({ job, at, children }: { job: string; at?: number; children?: string }) {
  const text = shown(children || job);
  const long = text.length > LONG_NAME;
  return (
    <a
      class={long ? "long" : undefined}
      aria-label={long ? text : undefined}
      title={long ? text : undefined}
      href={address({ view: "job", job, ...(at && { at }) })}
      onClick={(event) => {
        event.preventDefault();
        if (at) goTo(at);
        openJob(job);
      }}
    >
      {long ? [<span key="head">{text.slice(0, -TAIL)}</span>, <span key="tail">{text.slice(-TAIL)}</span>] : text}
    </a>
  );
}

/** The names that an input with `list` offers, `after` those that it has already. */
export function Names({ id, names, after = "" }: { id: string; names: readonly string[]; after?: string }) {
  const before = after && !after.endsWith(" ") ? `${after} ` : after;
  return (
    <datalist id={id}>
      {names.slice(0, 500).map((one) => (
        <option key={one} value={before + shown(one)} />
      ))}
    </datalist>
  );
}

export function Legend({ items }: { items: readonly Key[] }) {
  return (
    <ul class="legend">
      {items.map(([name, colour, drawn = ""]) => (
        <li key={name}>
          {colour !== "transparent" && <span class={`swatch ${drawn}`} style={{ color: colour }} />}
          {name}
        </li>
      ))}
    </ul>
  );
}

/** Saves a chart, which is drawn for it. */
export function SaveSvg({ of }: { of: () => Picture }) {
  return (
    <button type="button" class="save live-only" title="Save this chart as an SVG file" onClick={() => exportSvg(of())}>
      SVG
    </button>
  );
}

export function Figure({ name, value, of }: { name: string; value: number | undefined; of?: number | undefined }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        {amount(value)}
        {of !== undefined && <span class="faint"> of {amount(of)}</span>}
      </dd>
    </div>
  );
}
