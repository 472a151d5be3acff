import type { ButtonHTMLAttributes, ComponentChildren } from "preact";

export interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "class" | "type" | "disabled"> {
  kind?: "plain" | "primary" | "danger" | "quiet";
  type?: "button" | "submit";
  disabled?: boolean;
  isBusy?: boolean;
  small?: boolean;
  children: ComponentChildren;
}

export function Button({ kind = "plain", type = "button", isBusy = false, small = false, disabled, children, ...rest }: ButtonProps) {
  return (
    <button
      {...rest}
      type={type}
      class={`button ${kind}${small ? " small" : ""}`}
      disabled={disabled ?? false}
      aria-busy={isBusy}
      aria-disabled={isBusy}
    >
      {children}
    </button>
  );
}
