// Questions to the API on the same host. A refusal is an error with the server's words.
import { signal } from "@preact/signals";

/** The bearer token of a server that asks for one. It stays in this tab and is never in an address. */
export const token = signal(sessionStorage.getItem("token") ?? "");
/** The server asked who is there. */
export const tokenWanted = signal(false);

/** The epoch of the log that the answers are about, as the server names it; empty: no answer has come. Another epoch is
 * another log: the file was replaced, or the log's records are lost. */
export const epoch = signal("");
/** The answer is about a log that isn't the one that the page shows any more. */
const OF_ANOTHER = "the log is another one now";

/** Learn from an answer of which log it is; `before` is the epoch when it was asked. Throws if that isn't the one that
 * the page shows, or not any more: nothing of it may stand beside the other's. */
function learn(answer: Response, before: string): void {
  const named = answer.headers.get("X-Arranger-Epoch") ?? "";
  const shown = epoch.peek();
  if (!named || named === shown) return;
  // An answer that was on its way when the log was replaced doesn't bring the earlier one back.
  if (before === shown) epoch.value = named;
  if (shown) throw new Refused(OF_ANOTHER, 503);
}

/** Why nothing new reaches the page, and since when, in milliseconds since 1970; null: all is well. */
export const lost = signal<{ since: number; why: string } | null>(null);

const UNREACHED = "the server can't be reached";
/** The server says something every 15 s, be it that there is nothing new. After such a silence it counts as gone. */
const SILENT_MS = 45_000;
const RECONNECT_MS = 2000;
const AGAIN_MS = 200;

function lose(why: string, since: number): void {
  lost.value = { since: lost.peek()?.since ?? since, why };
}

/** How much the server's clock is ahead of this one's, in milliseconds. */
let aheadMs = 0;
/** The server's time in seconds since 1970: it writes the times of a log that it follows, and answers tell it by the
 * second. */
export const now = (): number => (Date.now() + aheadMs) / 1000;

function compareClocks(answer: Response): void {
  const ahead = Date.parse(answer.headers.get("Date") ?? "") - Date.now();
  if (Math.abs(ahead) > 3000) aheadMs = ahead;
}

export class Refused extends Error {
  constructor(
    message: string,
    readonly code: number,
  ) {
    super(message);
  }
}

/** Whether what went wrong may pass by itself: the server can't be reached, or can't answer yet. */
export function passes(problem: unknown): boolean {
  return problem instanceof Refused && [0, 429, 503].includes(problem.code);
}

/** Answers that stand in the page itself, by question: those of a page without a server. */
export const embedded = new Map<string, unknown>();

export type Parameters = Record<string, string | number | readonly string[] | undefined>;

/** The answer to a question. `objects` is YAML with Kubernetes objects that it is about too. */
export async function ask<T>(
  question: string,
  given: Parameters = {},
  { signal, objects }: { signal?: AbortSignal; objects?: string } = {},
): Promise<T> {
  if (embedded.has(question)) return embedded.get(question) as T;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== "") query.append(name, String(one));
    }
  }
  const words = query.toString();
  const before = epoch.peek();
  let answer: Response;
  try {
    answer = await fetch(`api/v1/${question}${words && `?${words}`}`, {
      headers: { ...headers(), ...(objects && { "Content-Type": "application/yaml" }) },
      signal: signal ?? null,
      ...(objects && { method: "POST", body: objects }),
    });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw new Refused(UNREACHED, 0);
  }
  if (!answer.ok) throw await refusal(answer);
  compareClocks(answer);
  learn(answer, before);
  return (await answer.json()) as T;
}

export function setToken(value: string): void {
  token.value = value;
  sessionStorage.setItem("token", value);
  tokenWanted.value = false;
}

/** Calls `onNews` with the offset of each new event, until `signal` aborts. After a lost connection it goes on. It calls
 * it with 0 at the beginning of each connection, and when the server reads the log again: events may have come since the
 * page was read, or meanwhile. */
export async function watch(onNews: (offset: number) => void, signal: AbortSignal): Promise<void> {
  let last = "";
  while (!signal.aborted) {
    const mine = new AbortController();
    const stop = (): void => mine.abort();
    signal.addEventListener("abort", stop);
    let heard = Date.now();
    const silence = setInterval(() => Date.now() - heard > SILENT_MS && stop(), 5000);
    let why = UNREACHED;
    let refused = false;
    try {
      const answer = await fetch("api/v1/live", {
        headers: { ...headers(), ...(last && { "Last-Event-ID": last }) },
        signal: mine.signal,
      });
      if (!answer.ok || !answer.body) throw await refusal(answer);
      lost.value = null;
      epoch.value = answer.headers.get("X-Arranger-Epoch") ?? epoch.peek();
      onNews(0);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      let event = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard = Date.now();
        const lines = (rest + value).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (!line) event = "";
          else if (line.startsWith("event: ")) event = line.slice(7);
          else if (line.startsWith("data: ") && event === "problem") tell(line.slice(6), onNews);
          else if (line.startsWith("data: ") && event === "refused") refused = true;
          else if (line.startsWith("id: ")) {
            last = line.slice(4);
            onNews(Number(last.split("-")[1]));
          }
        }
      }
    } catch (caught) {
      last = signal.aborted ? last : "";
      if (caught instanceof Refused) why = caught.message;
    } finally {
      clearInterval(silence);
      signal.removeEventListener("abort", stop);
    }
    // The server doesn't go on from there: the log is another one, or so many events came that some aren't kept.
    if (refused) {
      last = "";
      await new Promise((done) => setTimeout(done, AGAIN_MS));
      continue;
    }
    if (!signal.aborted && !tokenWanted.peek()) lose(why, heard);
    await new Promise((done) => setTimeout(done, RECONNECT_MS));
  }
}

/** The server can't read the log, or, without a message, reads it again. */
function tell(data: string, onNews: (offset: number) => void): void {
  const { message } = JSON.parse(data) as { message: string };
  if (message) return lose(message, Date.now());
  lost.value = null;
  onNews(0);
}

function headers(): Record<string, string> {
  return token.value ? { Authorization: `Bearer ${token.value}` } : {};
}

async function refusal(answer: Response): Promise<Refused> {
  if (answer.status === 401) tokenWanted.value = true;
  try {
    const body = (await answer.json()) as { message?: string };
    if (body.message) return new Refused(body.message, answer.status);
  } catch {
    // Not JSON: a proxy answered.
  }
  return new Refused(`the server answered with code ${answer.status}`, answer.status);
}
