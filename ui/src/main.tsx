import { render } from "preact";
import { App } from "./shell/app";
import { startTheme } from "./parts/theme";
import "./styles/index.css";

startTheme();
const target = document.getElementById("app");
if (target === null) throw new Error("the page has no element #app");
render(<App />, target);
