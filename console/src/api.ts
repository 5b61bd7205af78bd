// Questions to the API on the same host. A refusal is an error with the server's words.
import { signal } from "@preact/signals";

/** The bearer token of a server that asks for one. It stays in this tab and is never in an address. */
export const token = signal(sessionStorage.getItem("token") ?? "");
/** The server asked who is there. */
export const tokenWanted = signal(false);

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

export type Parameters = Record<string, string | number | readonly string[] | undefined>;

/** The answer to a question. `objects` is YAML with Kubernetes objects that it is about too. */
export async function ask<T>(
  question: string,
  given: Parameters = {},
  { signal, objects }: { signal?: AbortSignal; objects?: string } = {},
): Promise<T> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== "") query.append(name, String(one));
    }
  }
  const words = query.toString();
  let answer: Response;
  try {
    answer = await fetch(`api/v1/${question}${words && `?${words}`}`, {
      headers: { ...headers(), ...(objects && { "Content-Type": "application/yaml" }) },
      signal: signal ?? null,
      ...(objects && { method: "POST", body: objects }),
    });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw new Refused("the server can't be reached", 0);
  }
  if (!answer.ok) throw await refusal(answer);
  return (await answer.json()) as T;
}

export function setToken(value: string): void {
  token.value = value;
  sessionStorage.setItem("token", value);
  tokenWanted.value = false;
}

/** Calls `onNews` with the offset of each new event, until `signal` aborts. After a lost connection it goes on. It calls
 * it with 0 at the beginning of each connection: events may have come since the page was read, or meanwhile. */
export async function watch(onNews: (offset: number) => void, signal: AbortSignal): Promise<void> {
  let last = "";
  while (!signal.aborted) {
    try {
      const answer = await fetch("api/v1/live", {
        headers: { ...headers(), ...(last && { "Last-Event-ID": last }) },
        signal,
      });
      if (!answer.ok || !answer.body) throw await refusal(answer);
      onNews(0);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (!line.startsWith("id: ")) continue;
          last = line.slice(4);
          onNews(Number(last.split("-")[1]));
        }
      }
    } catch {
      last = signal.aborted ? last : "";
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
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
