import "./styles/tokens.css";
import "./styles/page.css";
import "./styles/components.css";
import "./styles/views.css";
import { render } from "preact";
import { App } from "./App";
import { listenToKeys } from "./keys";
import { followLinks } from "./router";
import { applyTheme } from "./theme";

applyTheme();
followLinks();
listenToKeys();
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
