/** The search language of jobs: `user:ada status:queued tag:"spring sale"`, kept in the URL. */

/** qualifier → parameter of GET /api/v1/jobs */
export const QUALIFIERS = {
  status: "status",
  user: "user_id",
  service: "service",
  feature: "feature_name",
  tier: "tier",
  tag: "tag",
  region: "region",
  model: "model",
} as const;

export type Qualifier = keyof typeof QUALIFIERS;

export const STATES = ["queued", "running", "completed", "failed", "dead", "cancelled"];
export const DEAD_LETTERS = "status:dead";

export interface Search {
  filter: Partial<Record<Qualifier, string>>;
  unknown: string[];
}

const TOKEN = /(?:([a-z_]+):)?(?:"([^"]*)"|(\S+))/g;
const JOB_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export const isJobId = (text: string): boolean => JOB_ID.test(text.trim());

/** A word without a qualifier names a user. */
export function parsedSearch(text: string): Search {
  const search: Search = { filter: {}, unknown: [] };
  for (const [whole, key, quoted, plain] of text.matchAll(TOKEN)) {
    const value = quoted ?? plain ?? "";
    if (value === "") continue;
    if (key === undefined) search.filter.user = value;
    else if (Object.hasOwn(QUALIFIERS, key)) search.filter[key as Qualifier] = value;
    else search.unknown.push(whole);
  }
  return search;
}

export function written(filter: Search["filter"]): string {
  return Object.entries(filter)
    .filter(([, value]) => value !== "")
    .map(([key, value]) => `${key}:${/\s/.test(value) ? `"${value}"` : value}`)
    .join(" ");
}

/** The filter in the words of the HTTP API. */
export function parameters(filter: Search["filter"]): Record<string, string> {
  return Object.fromEntries(
    Object.entries(filter).map(([key, value]) => [QUALIFIERS[key as Qualifier], value]),
  );
}

/** Ways to go on from what has been typed. */
export function suggestions(text: string, values: Partial<Record<Qualifier, string[]>>): string[] {
  const start = text.lastIndexOf(" ") + 1;
  const [before, word] = [text.slice(0, start), text.slice(start)];
  const [key, value] = word.split(":", 2) as [string, string | undefined];
  if (value === undefined) {
    const keys = Object.keys(QUALIFIERS).filter((each) => each.startsWith(key));
    return keys.flatMap((each) => (values[each as Qualifier] ?? [""]).map((known) => `${before}${each}:${known}`));
  }
  const known = values[key as Qualifier] ?? [];
  return known.filter((each) => each.startsWith(value)).map((each) => `${before}${key}:${each}`);
}
