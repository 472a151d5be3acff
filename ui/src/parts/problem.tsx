import type { Problem } from "../api/client";
import { Button } from "./button";

/** What went wrong, and what to do. */
export function ProblemBox({ problem, onRetry }: { problem: Problem; onRetry?: () => void }) {
  const hint = problem.hint !== null && !problem.message.includes(problem.hint) ? problem.hint : null;
  return (
    <div class="problem" role="alert">
      <p>{problem.message}</p>
      {hint && <p class="muted">{hint}</p>}
      {onRetry && (
        <Button small onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
