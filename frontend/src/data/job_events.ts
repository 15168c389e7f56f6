/** The live events of one job. The socket ends with the job; it comes back after a lost connection. */

import { useEffect } from "preact/hooks";

const ENDED = 1000;
const NO_SUCH_JOB = 4404;
const RETRY_MS = 2_000;

export function useJobEvents(id: string, after: number | null, onNews: () => void): void {
  const ready = after !== null;
  useEffect(() => {
    if (!ready) return;
    let stopped = false;
    let socket: WebSocket | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const open = () => {
      if (stopped || socket !== null || document.hidden) return;
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      const opened = new WebSocket(`${scheme}//${location.host}/ws/${encodeURIComponent(id)}?after=${after}`);
      socket = opened;
      opened.onmessage = onNews;
      opened.onclose = (event) => {
        if (socket === opened) socket = null;
        if (!stopped && event.code !== ENDED && event.code !== NO_SUCH_JOB) timer = setTimeout(open, RETRY_MS);
      };
    };
    const rest = () => {
      clearTimeout(timer);
      const closing = socket;
      socket = null;
      if (closing !== null) {
        closing.onclose = null;
        closing.close();
      }
    };
    const seen = () => {
      if (document.hidden) rest();
      else {
        onNews();
        open();
      }
    };
    open();
    document.addEventListener("visibilitychange", seen);
    return () => {
      stopped = true;
      rest();
      document.removeEventListener("visibilitychange", seen);
    };
  }, [id, ready]);
}
