import { useState } from "preact/hooks";
import { call, get } from "../data/api";
import type { Execution, ExecutionPage } from "../data/jobs";
import { mayChange } from "../data/session";
import { plural } from "../format";
import { jobLink } from "../router";
import { attempt } from "./Announcements";
import { DataTable } from "./DataTable";
import { Dialog } from "./Dialog";
import { Json } from "./Json";
import { isWrong } from "./StateText";

const PAGE = 200;
const MAX_CELLS = 2_000;

/** Every execution of a fan-out, page by page. */
export async function loadExecutions(id: string): Promise<Execution[]> {
  const found: Execution[] = [];
  let cursor: string | null = null;
  do {
    const more: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    const page: ExecutionPage = await get(`/api/v1/jobs/${encodeURIComponent(id)}/executions?limit=${PAGE}${more}`);
    found.push(...page.executions);
    cursor = page.next;
  } while (cursor !== null && found.length < MAX_CELLS);
  return found;
}

interface Props {
  executions: Execution[];
  tier: string;
  onChange: () => void;
}

/** A fan-out as a matrix of cells. Empty: waits; half: runs; full: completed; red: failed. */
export function Matrix({ executions, tier, onChange }: Props) {
  const [open, setOpen] = useState<string | null>(null);
  const axes = [...new Set(executions.flatMap((each) => Object.keys(each.cell)))];
  const [rowAxis, columnAxis, ...others] = byLength(axes, executions);
  const rows = valuesOf(executions, rowAxis);
  const columns = columnAxis === undefined ? [""] : valuesOf(executions, columnAxis);
  const failed = executions.filter((each) => isWrong(each.status));
  const done = executions.filter((each) => each.status === "completed").length;
  const chosen = executions.find((each) => each.execution_id === open);
  const cells = (row: string, column: string) =>
    executions.filter((each) => each.cell[rowAxis ?? ""] === row && (columnAxis === undefined || each.cell[columnAxis] === column));
  const retryAll = () =>
    attempt(async () => {
      for (const each of failed) await retry(each.execution_id);
      onChange();
    }, `${plural(failed.length, "cell")} will run again.`);
  return (
    <section class="card" aria-label="Fan-out">
      <header class="card-head">
        <h2>
          {plural(executions.length, "cell")} · {done} done{failed.length > 0 ? `, ${failed.length} failed` : ""}
        </h2>
        {failed.length > 0 && mayChange.value && <button onClick={() => void retryAll()}>Retry {plural(failed.length, "failed cell")}</button>}
      </header>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Matrix of the fan-out">
        <table class={`matrix ${tier}`}>
          <caption class="visually-hidden">
            {rowAxis} by {columnAxis ?? "execution"}
          </caption>
          {columnAxis !== undefined && (
            <thead>
              <tr>
                <td class="soft">{rowAxis} ╲ {columnAxis}</td>
                {columns.map((column) => (
                  <th scope="col">{column}</th>
                ))}
              </tr>
            </thead>
          )}
          <tbody>
            {rows.map((row) => (
              <tr>
                <th scope="row">{row}</th>
                {columns.map((column) => (
                  <td>
                    {cells(row, column).map((each) => (
                      <button
                        class={`cell ${each.status}`}
                        title={nameOf(each)}
                        aria-label={nameOf(each)}
                        onClick={() => setOpen(each.execution_id)}
                      />
                    ))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {others.length > 0 && <p class="soft">Each place also holds the cells of {others.join(", ")}.</p>}
      {failed.length > 0 && (
        <DataTable
          caption="Failed cells"
          columns={["cell", "attempts", "error"]}
          rows={failed.slice(0, 20).map((each) => [Object.values(each.cell).join(", "), each.attempts, each.error?.message ?? ""])}
        />
      )}
      {chosen && <CellDialog cell={chosen} onClose={() => setOpen(null)} onChange={onChange} />}
    </section>
  );
}

function CellDialog({ cell, onClose, onChange }: { cell: Execution; onClose: () => void; onChange: () => void }) {
  const again = async () => {
    if (await attempt(() => retry(cell.execution_id), "The cell will run again.")) {
      onChange();
      onClose();
    }
  };
  return (
    <Dialog title={Object.values(cell.cell).join(", ")} onClose={onClose}>
      <p class={isWrong(cell.status) ? "wrong" : undefined}>
        {cell.status}
        {cell.region ? ` in ${cell.region}` : ""}, {plural(cell.attempts, "attempt")}
      </p>
      {cell.error && <p>{cell.error.message}</p>}
      {cell.result != null && <Json value={cell.result} label="Result" />}
      <div class="actions">
        {isWrong(cell.status) && mayChange.value && (
          <button class="primary" onClick={() => void again()}>
            Retry this cell
          </button>
        )}
        <a class="button" href={jobLink(cell.execution_id)} onClick={onClose}>
          Open
        </a>
      </div>
    </Dialog>
  );
}

const retry = (id: string): Promise<unknown> => call("POST", `/api/v1/executions/${encodeURIComponent(id)}/retry-question`, {});

const nameOf = (each: Execution): string => `${Object.values(each.cell).join(", ")}: ${each.status}`;

const valuesOf = (executions: Execution[], axis: string | undefined): string[] =>
  axis === undefined ? [] : [...new Set(executions.map((each) => each.cell[axis] ?? ""))].sort();

/** The two axes with most values span the matrix; the longest runs down. */
function byLength(axes: string[], executions: Execution[]): string[] {
  return axes.toSorted((a, b) => valuesOf(executions, b).length - valuesOf(executions, a).length);
}
