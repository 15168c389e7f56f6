import type { ComponentChildren } from "preact";
import type { Problem } from "../data/api";

/** A calm sentence in place of content: empty, loading or refused. */
export function Notice({ children }: { children: ComponentChildren }) {
  return <p class="notice soft">{children}</p>;
}

export function Refusal({ problem, retry }: { problem: Problem; retry?: () => void }) {
  return (
    <div class="alert wrong" role="alert">
      <span class="mark" aria-hidden="true">✗</span>
      <p>{problem.message}</p>
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );
}
