import { useEffect, useState } from "preact/hooks";
import { say } from "./Announcements";

interface Props {
  text: string;
  label?: string;
  code?: boolean;
}

/** Copies a text. With `code`, the text itself is the button. */
export function CopyButton({ text, label, code = false }: Props) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = async () => {
    if (await toClipboard(text)) {
      setCopied(true);
      say("Copied.");
    } else say(text);
  };
  return (
    <button class={code ? "command" : "quiet"} onClick={() => void copy()} title="copy" aria-label={`copy ${label ?? text}`}>
      {copied ? "copied" : code ? <code>{text}</code> : (label ?? "copy")}
    </button>
  );
}

/** Whether the text was copied: browsers allow it on secure pages only. */
export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
