/** A few buttons of which one is chosen: a period, or how time is cut. */
export function Choice<T extends string>({ label, value, options, onChoose }: { label: string; value: T; options: [value: T, words: string][]; onChoose: (value: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([each, words]) => (
        <button key={each} type="button" aria-pressed={each === value} onClick={() => onChoose(each)}>
          {words}
        </button>
      ))}
    </div>
  );
}

/** Return the chosen value of a parameter of the URL; the first option if it is none of them. */
export function chosen<T extends string>(query: URLSearchParams, name: string, options: [value: T, words: string][], fallback: T): T {
  const found = query.get(name);
  return options.find(([each]) => each === found)?.[0] ?? fallback;
}
