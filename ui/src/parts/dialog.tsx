// Dialogs: the browser's own <dialog>, which keeps the focus inside and closes with Esc.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import type { Problem } from "../api/client";
import { Button, type ButtonProps } from "./button";
import { ProblemBox } from "./problem";

export interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

/** A modal dialog. It is open as long as it is rendered. */
export function Dialog({ title, onClose, children, wide = false }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const isPressed = useRef(false);
  const heading = useId();
  // Before the next key: the first letters after Ctrl-K belong to the dialog.
  useLayoutEffect(() => {
    const found = dialog.current;
    const before = document.activeElement;
    if (found !== null && !found.open) found.showModal();
    return () => {
      found?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onPointerDown={(event) => (isPressed.current = event.target === dialog.current)}
      onClick={(event) => {
        // Beside the dialog; not the second click of those that opened it, nor the end of a selection of text inside.
        if (event.target === dialog.current && isPressed.current && event.detail < 2) onClose();
      }}
    >
      <div class="dialog-body">
        <header>
          <h2 id={heading}>{title}</h2>
          <Button kind="quiet" small aria-label="Close" onClick={onClose}>
            ✕
          </Button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

export interface ActionDialogProps extends DialogProps {
  /** The word on the button: "Pause". */
  verb: string;
  kind?: ButtonProps["kind"];
  isBusy: boolean;
  error: Problem | null;
  disabled?: boolean;
  onSubmit: () => void;
}

/** A dialog with one action: a form with a button that does it, and a button that does not. */
export function ActionDialog({ verb, kind = "primary", isBusy, error, disabled = false, onSubmit, children, ...rest }: ActionDialogProps) {
  return (
    <Dialog {...rest}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (!disabled && !isBusy) onSubmit();
        }}
      >
        {children}
        {error && <ProblemBox problem={error} />}
        <footer>
          <Button kind="plain" onClick={rest.onClose}>
            Cancel
          </Button>
          <Button kind={kind} type="submit" isBusy={isBusy} disabled={disabled}>
            {isBusy ? `${verb} …` : verb}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
