import { useState } from "preact/hooks";

const SHOWN_CHARACTERS = 4_000;
const ONE_LINE = 48;

/** Any value of a job, as text and nothing else. */
export function Json({ value, label }: { value: unknown; label: string }) {
  const [all, setAll] = useState(false);
  const text = written(value);
  const cut = !all && text.length > SHOWN_CHARACTERS;
  return (
    <>
      <pre tabIndex={0} role="group" aria-label={label}>{cut ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text}</pre>
      {cut && (
        <button class="quiet" onClick={() => setAll(true)}>
          show all {text.length.toLocaleString("en")} characters
        </button>
      )}
    </>
  );
}

/** A small object stays on one line. */
export function written(value: unknown): string {
  if (typeof value === "string") return value;
  const lines = JSON.stringify(value, null, 2);
  const line = lines.replace(/\n\s*/g, " ");
  return line.length <= ONE_LINE ? line : lines;
}
