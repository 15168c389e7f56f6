import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Dialog } from "./Dialog";

interface Props {
  title: string;
  action: string;
  danger?: boolean;
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
  children: ComponentChildren;
}

/** Says what will happen, and does it only when the user confirms. */
export function Confirm({ title, action, danger = false, onConfirm, onClose, children }: Props) {
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    try {
      await onConfirm();
    } finally {
      setBusy(false);
      onClose();
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">{children}</div>
      <div class="actions">
        <button class={danger ? "primary danger" : "primary"} disabled={busy} onClick={() => void confirm()}>
          {action}
        </button>
        <button onClick={onClose}>Keep as it is</button>
      </div>
    </Dialog>
  );
}
