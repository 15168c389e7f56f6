/** Who looks at the page. The server enforces the role; the page only hides what would be refused. */

import { computed, signal } from "@preact/signals";

export interface Session {
  signed_in: boolean;
  role: "admin" | "client" | "read" | "worker" | null;
  tenant: string | null;
  act_as: boolean;
  set_priority: boolean;
  version: string;
  dev_mode: boolean;
}

export const session = signal<Session | null>(null);
export const isAdmin = computed(() => session.value?.role === "admin");
export const mayChange = computed(() => ["admin", "client"].includes(session.value?.role ?? ""));

export function signedOut(): void {
  const known = session.value;
  if (known !== null) session.value = { ...known, signed_in: false, role: null };
}
