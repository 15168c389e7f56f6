import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { DataTable } from "./DataTable";

interface Props {
  title: string;
  detail?: string;
  aside?: ComponentChildren;
  columns: string[];
  rows: ComponentChildren[][];
  children: ComponentChildren;
}

/** A card with a drawing, and the table behind it: hidden until the user asks for it. */
export function Figure({ title, detail, aside, columns, rows, children }: Props) {
  const [asTable, setAsTable] = useState(false);
  return (
    <section class="card" aria-label={title}>
      <header class="card-head">
        <h2>
          {title}
          {detail && <span class="detail"> · {detail}</span>}
        </h2>
        {aside}
        <button class="quiet" aria-pressed={asTable} onClick={() => setAsTable(!asTable)} aria-label={`${title} as a table`}>
          table
        </button>
      </header>
      <div aria-hidden="true" class={asTable ? "gone" : undefined}>{children}</div>
      <DataTable caption={title} columns={columns} rows={rows} hidden={!asTable} />
    </section>
  );
}
