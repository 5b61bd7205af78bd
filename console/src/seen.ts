// Names of jobs that answers have brought beside the moment's own, so that an export can replace them too.
import { signal } from "@preact/signals";

export const seenJobs = signal<readonly string[]>([]);

export function see(jobs: readonly string[]): void {
  const known = new Set(seenJobs.peek());
  const fresh = jobs.filter((one) => one && !known.has(one));
  if (fresh.length) seenJobs.value = [...seenJobs.peek(), ...fresh];
}
