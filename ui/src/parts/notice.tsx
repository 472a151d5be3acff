// Notices: a sentence about what was just done, for some seconds. Screen readers read it.

import { createStore, useStore } from "../state/store";

interface Notice {
  id: number;
  text: string;
  link: NoticeLink | null;
}

export interface NoticeLink {
  to: string;
  label: string;
}

const notices = createStore<Notice[]>([]);
let last = 0;

const SHOWN = 6_000;

/** Say what was done: "Paused mail-digest.", with a link to what came of it. */
export function notify(text: string, link: NoticeLink | null = null): void {
  last += 1;
  const id = last;
  notices.set([...notices.get(), { id, text, link }].slice(-3));
  setTimeout(() => notices.set(notices.get().filter((notice) => notice.id !== id)), SHOWN);
}

export function Notices() {
  const shown = useStore(notices);
  return (
    <div class="notices" role="status" aria-live="polite">
      {shown.map((notice) => (
        <p key={notice.id}>
          {notice.text} {notice.link && <a href={notice.link.to}>{notice.link.label}</a>}
        </p>
      ))}
    </div>
  );
}
