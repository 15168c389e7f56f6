import { KEYS } from "../keys";
import { Dialog } from "./Dialog";

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([key, does]) => (
          <>
            <dt>{key.split(" ").map((each) => <kbd>{each}</kbd>)}</dt>
            <dd>{does}</dd>
          </>
        ))}
      </dl>
      <p class="soft">
        A cell is one slot: it fills as its call nears the usual time. Colour is the tier, red is wrong, a dashed line is a
        target. Every drawing has a table behind it.
      </p>
    </Dialog>
  );
}
