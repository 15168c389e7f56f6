import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { frame, togglePause } from "../data/live";
import { jobLink, jobsLink, navigate, serviceLink } from "../router";
import { DEAD_LETTERS, isJobId } from "../search";
import { nextTheme } from "../theme";
import { Dialog } from "./Dialog";

interface Choice {
  name: string;
  run: () => void;
}

const SHOWN = 10;

/** Ctrl-K: go to anything by typing a part of its name. */
export function Palette({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  const found = choices(text).slice(0, SHOWN);
  const take = (choice: Choice | undefined) => {
    if (choice === undefined) return;
    onClose();
    choice.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, found.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") take(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to" onClose={onClose}>
      <input
        ref={input}
        class="palette-input"
        type="text"
        role="combobox"
        aria-label="Go to"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={`palette-${at}`}
        placeholder="a view, a service, a job id, a user"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul class="palette" id="palette" role="listbox" aria-label="Results">
        {found.map((choice, place) => (
          <li id={`palette-${place}`} role="option" aria-selected={place === at} onClick={() => take(choice)} onPointerMove={() => setAt(place)}>
            {choice.name}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function choices(text: string): Choice[] {
  const word = text.trim();
  const go = (name: string, target: string): Choice => ({ name, run: () => navigate(target) });
  if (isJobId(word)) return [go(`Job ${word}`, jobLink(word))];
  const all = [
    go("Now", "/"),
    go("Jobs", "/jobs"),
    go("Dead letters", jobsLink(DEAD_LETTERS)),
    go("Submit a job", "/jobs?new=1"),
    go("Fleet: workers, regions, models", "/fleet"),
    go("Control: limits, keys, audit, doctor, what-if", "/control"),
    ...Object.keys(frame.value?.services ?? {}).map((name) => go(`Service ${name}`, serviceLink(name))),
    { name: "Pause or go on", run: togglePause },
    { name: "Change the theme", run: nextTheme },
  ];
  const found = all.filter((choice) => choice.name.toLowerCase().includes(word.toLowerCase()));
  if (word === "") return found;
  return [...found, go(`Jobs of user ${word}`, jobsLink(`user:${quoted(word)}`)), go(`Jobs with tag ${word}`, jobsLink(`tag:${quoted(word)}`))];
}

const quoted = (text: string): string => (/\s/.test(text) ? `"${text}"` : text);
