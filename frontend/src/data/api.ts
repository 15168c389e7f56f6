/** Requests to the HTTP API. A refusal becomes a `Problem` whose text can be shown. */

import { useCallback, useEffect, useState } from "preact/hooks";
import { session, signedOut, type Session } from "./session";

const CSRF_COOKIE = "fairlane_csrf";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
  ) {
    super(detail);
  }
}

type Method = "GET" | "POST" | "PUT" | "DELETE";

export async function call<T>(method: Method, path: string, body?: unknown, abort?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-CSRF-Token"] = cookie(CSRF_COOKIE);
  let response: Response;
  try {
    const text = body === undefined ? null : JSON.stringify(body);
    response = await fetch(path, { method, headers, body: text, signal: abort ?? null });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new Problem(0, "offline", "The server does not answer. Check that it runs, then try again.");
  }
  if (response.ok) return (response.status === 204 ? null : await response.json()) as T;
  if (response.status === 401 && path !== "/session") signedOut();
  throw await problem(response);
}

export const get = <T>(path: string, abort?: AbortSignal): Promise<T> => call<T>("GET", path, undefined, abort);

async function problem(response: Response): Promise<Problem> {
  const said: { code?: string; detail?: string } = await response.json().catch(() => ({}));
  return new Problem(response.status, said.code ?? "", said.detail ?? `The server answered ${response.status}.`);
}

export async function loadSession(): Promise<void> {
  session.value = await get<Session>("/session");
}

export async function signIn(key: string): Promise<void> {
  await call("POST", "/session", { key });
  await loadSession();
}

export async function signOut(): Promise<void> {
  await call("DELETE", "/session");
  location.assign("/");
}

function cookie(name: string): string {
  const found = document.cookie.split("; ").find((part) => part.startsWith(`${name}=`));
  return found === undefined ? "" : decodeURIComponent(found.slice(name.length + 1));
}

export interface Loaded<T> {
  data: T | null;
  problem: Problem | null;
  reload: () => void;
}

/** The response of a GET. A null path asks for nothing. The last data stay while it reloads. */
export function useGet<T>(path: string | null): Loaded<T> {
  const [state, setState] = useState<{ path: string | null; data: T | null; problem: Problem | null }>({
    path,
    data: null,
    problem: null,
  });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    get<T>(path, abort.signal).then(
      (data) => setState({ path, data, problem: null }),
      (error: unknown) => {
        if (error instanceof Problem) setState((old) => ({ path, data: old.path === path ? old.data : null, problem: error }));
      },
    );
    return () => abort.abort();
  }, [path, turn]);
  const reload = useCallback(() => setTurn((old) => old + 1), []);
  const current = state.path === path;
  return { data: current ? state.data : null, problem: current ? state.problem : null, reload };
}
