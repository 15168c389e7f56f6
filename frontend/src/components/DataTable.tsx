import type { ComponentChildren } from "preact";

interface Props {
  caption: string;
  columns: string[];
  rows: ComponentChildren[][];
  hidden?: boolean;
}

/** The facts of a drawing as a table. A hidden one is there for screen readers only. */
export function DataTable({ caption, columns, rows, hidden = false }: Props) {
  return (
    <div class={hidden ? "visually-hidden" : "table-scroll"} {...(hidden ? {} : { tabIndex: 0, role: "region", "aria-label": caption })}>
      <table class="facts">
        <caption>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col">{column}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((cell) => (
                <td>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
