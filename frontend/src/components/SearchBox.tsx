import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { frame } from "../data/live";
import { useKeys } from "../keys";
import { jobLink, jobsLink, navigate, query, route } from "../router";
import { isJobId, parsedSearch, STATES, suggestions, written } from "../search";

/** Finds a job by its id, or jobs by qualifiers. */
export function SearchBox() {
  const input = useRef<HTMLInputElement>(null);
  const shown = route.value.view === "jobs" ? (query.value.get("q") ?? "") : "";
  const [text, setText] = useState(shown);
  useLayoutEffect(() => setText(shown), [shown]); // an effect after the paint could undo what was typed since
  useKeys({ "/": () => input.current?.select() });
  const search = (event: Event) => {
    event.preventDefault();
    input.current?.blur();
    if (isJobId(text)) navigate(jobLink(text.trim()));
    else navigate(jobsLink(withUnknown(text)));
  };
  const values = {
    status: STATES,
    tier: (frame.value?.tiers ?? []).map((tier) => tier.name),
    service: Object.keys(frame.value?.services ?? {}),
  };
  return (
    <form class="search" role="search" onSubmit={search}>
      <input
        ref={input}
        type="search"
        list="search-suggestions"
        value={text}
        placeholder="Find a job, user or tag"
        aria-label="Find a job, user or tag"
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") input.current?.blur();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
      <datalist id="search-suggestions">
        {suggestions(text, values).slice(0, 24).map((each) => (
          <option value={each} />
        ))}
      </datalist>
    </form>
  );
}

/** A bare word becomes `user:word`; unknown qualifiers stay, and the list says so. */
function withUnknown(text: string): string {
  const { filter, unknown } = parsedSearch(text);
  return [written(filter), ...unknown].filter((part) => part !== "").join(" ");
}
