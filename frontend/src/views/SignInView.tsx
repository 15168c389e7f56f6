import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem, signIn } from "../data/api";

export function SignInView() {
  const [key, setKey] = useState("");
  const [refused, setRefused] = useState("");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setRefused("");
    try {
      await signIn(key.trim());
    } catch (error) {
      setRefused(error instanceof Problem && error.status === 401 ? "This key is not valid." : error instanceof Error ? error.message : "");
    }
    setBusy(false);
  };
  return (
    <main class="alone">
      <form class="card sign-in" onSubmit={(event) => void submit(event)}>
        <svg class="logo-mark" viewBox="0 0 20 24" aria-hidden="true">
          <path d="M10 0h8v12h-8zM2 12h8v12H2z" />
        </svg>
        <h1>Fairlane</h1>
        <input type="text" autocomplete="username" value="fairlane" hidden readOnly />
        <label>
          API key
          <input
            ref={input}
            type="password"
            autocomplete="current-password"
            placeholder="id.secret"
            required
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </label>
        {refused && <p class="wrong" role="alert">{refused}</p>}
        <button class="primary" type="submit" disabled={busy}>
          Sign in
        </button>
        <p class="soft">
          An administrator makes a key with <code>fairlane keys create</code>. The page keeps no key: the server gives it a session of
          12 hours.
        </p>
      </form>
    </main>
  );
}
